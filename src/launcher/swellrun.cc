// SPDX-License-Identifier: GPL-2.0-or-later
// swellrun: runs a training program on all GPUs of a job, elastic or not. man swellrun.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <thread>
#include <unistd.h>

#include "config.h"
#include "control/swell_conf.h"
#include "core/number.h"
#include "launcher/agent.h"
#include "launcher/model_file.h"
#include "launcher/other_launcher.h"
#include "launcher/switch_network.h"

namespace {

using namespace swell;
using namespace swell::launcher;

constexpr double kScontrolSeconds = 20;
constexpr double kAskAgain_s = 1;
constexpr int kAsks = 3;

std::string env(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// What a command of Slurm's prints. It is asked again where it failed: slurmctld may have died
/// before it answered.
Result<std::string> answer_of(const std::vector<std::string>& command) {
  const auto began = std::chrono::steady_clock::now();
  const std::chrono::duration<double> pause(kAskAgain_s), limit(kScontrolSeconds);
  for (int asks = 1;; ++asks) {
    auto text = Children::output_of(command, kScontrolSeconds);
    if (text || asks == kAsks || std::chrono::steady_clock::now() - began > limit) return text;
    std::this_thread::sleep_for(pause);
  }
}

/// How slurmctld is reached and trusted.
Result<SlurmConfig> slurm_config() {
  const auto text = answer_of({"scontrol", "show", "config"});
  if (!text) return text.error();
  return read_config(*text);
}

/// At which port the controller would listen; an error says why there is none.
Result<std::uint16_t> controller_port(const SlurmConfig& config) {
  if (const std::string port = env("SWELL_CONTROL_PORT"); !port.empty()) {
    const auto value = read_number<std::uint16_t>(port);
    if (!value || *value == 0)
      return Error(fmt::format("SWELL_CONTROL_PORT={}: it must be a port", port));
    return *value;
  }
  const std::string file = control::swell_conf_path(config.conf_file);
  const auto conf = control::SwellConf::load(file);
  if (!conf) return conf.error();
  if (!conf->enabled) return Error(fmt::format("{} says Elasticity=no", file));
  return static_cast<std::uint16_t>(conf->control_port);
}

/// What the nodes publish of themselves; nothing where Slurm does not say.
std::map<std::string, cluster::NodeDescription> descriptions_of(
    const std::vector<WorkerNode>& nodes) {
  std::string names;
  for (const WorkerNode& node : nodes) names += (names.empty() ? "" : ",") + node.name;
  const auto text = answer_of({"scontrol", "show", "node", names});
  return text ? read_descriptions(*text) : std::map<std::string, cluster::NodeDescription>();
}

/// The run's agent, with or without a controller; or why only srun can make something of this.
/// `model`: what is trained, where its user says so.
Result<std::unique_ptr<Agent>> agent_for(const Options& options, const Json& model, JobId job) {
  const auto config = slurm_config();
  if (!config) return config.error();
  const auto text = answer_of({"scontrol", "show", "job", "-d", std::to_string(job)});
  if (!text) return text.error();
  if (const auto owner = read_owner(*text, job); owner && *owner != geteuid() && geteuid() != 0)
    return Error(fmt::format("job {} belongs to another user", job));
  const auto shares = read_job(*text, job);
  if (!shares) return shares.error();
  const bool has_gpus = std::any_of(shares->begin(), shares->end(),
                                    [](const NodeShare& share) { return share.gpus > 0; });
  if (const std::string wanted = read_wanted_gpus(*text, job); !has_gpus && !wanted.empty())
    return Error(
        fmt::format("Slurm gave job {} none of the GPUs that it asked for ({}), which happens just "
                    "after a start of slurmctld; `scontrol requeue {}` starts it again",
                    job, wanted, job));
  auto basic = basic_workers(job, options, *shares);
  if (!basic) return basic.error();

  Agent::Setup setup;
  setup.options = options;
  setup.munge_socket = config->munge_socket;
  setup.slurmctld_since = config->slurmctld_since;
  setup.controller = {config->controllers, 0, config->munge_socket, config->slurm_user};
  setup.shim =
      env("SWELL_WORKER").empty() ? SWELL_PKGLIBEXECDIR "/swell-worker" : env("SWELL_WORKER");
  if (access(setup.shim.c_str(), X_OK) != 0)
    return Error(fmt::format("{}: {}", setup.shim, std::strerror(errno)));
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  setup.hello.job = job;
  setup.hello.host = host;
  setup.hello.workers = basic->workers;
  setup.hello.gpus_per_worker = basic->gpus_per_worker;
  if (basic->shares_cpus)
    say(fmt::format(
        "the job has fewer CPUs than its {} workers: they share them; ask for more with "
        "sbatch --cpus-per-gpu=N",
        basic->workers));
  setup.basic = std::move(*basic);

  std::string rigid;
  if (const auto tag = read_tag(*text, job); !tag) {
    rigid = fmt::format("job {} was not submitted with --elastic", job);
  } else if (const auto spec = control::ElasticSpec::parse(tag->get("elastic")); !spec) {
    rigid = spec.error().while_doing(fmt::format("the AdminComment of job {}", job)).message();
  } else if (const auto port = controller_port(*config); !port) {
    rigid = "no Swell controller: " + port.error().message();
  } else {
    setup.spec = *spec;
    setup.controller.port = *port;
  }
  setup.elastic = rigid.empty();
  if (setup.elastic && setup.spec.mode == control::Mode::live) setup.hello.model = model;
  else if (setup.elastic && model.is_object())
    say("--model is not used: without --elastic=mode=live no program reports what it does, and "
        "nobody could check it");
  const std::string& network = options.switch_network;
  setup.wants_ports = setup.elastic && setup.spec.mode == control::Mode::live &&
                      (network == "auto" || network == "nccl" || network == "ucx");
  if (setup.wants_ports) setup.descriptions = descriptions_of(setup.basic.nodes);
  const int gpus = setup.basic.gpus;
  auto agent = Agent::start(std::move(setup));
  if (agent && !rigid.empty())
    say(fmt::format("{}: training on its own {} GPU{}, no more are lent", rigid, gpus,
                    gpus == 1 ? "" : "s"));
  return agent;
}

int run_srun(const Options& options) {
  std::vector<const char*> words = {"srun"};
  for (const std::string& word : options.srun) words.push_back(word.c_str());
  words.push_back(nullptr);
  execvp("srun", const_cast<char**>(words.data()));
  const int problem = errno;
  say(std::string("cannot run srun: ") + std::strerror(problem));
  return problem == ENOENT ? 127 : 126;
}

void block_signals(bool block) {
  sigset_t handled;
  sigemptyset(&handled);
  for (const int each : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2})
    sigaddset(&handled, each);
  sigprocmask(block ? SIG_BLOCK : SIG_UNBLOCK, &handled, nullptr);
}

int run(int argc, char** argv) {
  const auto options = Options::parse(
      {argv + 1, argv + argc}, [](const char* name) -> const char* { return std::getenv(name); });
  if (!options) {
    say(options.error().message());
    return 2;
  }
  if (options->help || options->version) {
    std::fputs(options->help ? help_text() : "swellrun " PACKAGE_VERSION "\n", stdout);
    return 0;
  }
  if (const auto problem = launcher_in(options->program)) {
    say(*problem);
    return 2;
  }
  Json model;
  if (!options->model.empty()) {
    auto read = read_model(options->model, options->global_batch);
    if (!read) {
      say(read.error().message());
      return 2;
    }
    model = std::move(*read);
  }
  const auto job = read_number<JobId>(env("SLURM_JOB_ID"));
  if (job.value_or(0) == 0 || options->program.empty()) return run_srun(*options);
  if (!options->plain_reason.empty()) {
    say(options->plain_reason + ": running as srun");
    return run_srun(*options);
  }
  std::signal(SIGPIPE, SIG_IGN);
  block_signals(true);
  auto agent = agent_for(*options, model, *job);
  if (!agent) {
    block_signals(false);
    std::signal(SIGPIPE, SIG_DFL);
    say(agent.error().message() + ": running as srun");
    return run_srun(*options);
  }
  return (*agent)->run();
}

}  // namespace

int main(int argc, char** argv) {
  int code = 1;
  try {
    code = run(argc, argv);
  } catch (const std::exception& e) { say(e.what()); }
  // Help that could not be written is no success.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    say("standard output cannot be written");
    code = code == 0 ? 1 : code;
  }
  std::fflush(nullptr);
  // Not exit(): a thread that still tries to reach the controller has nothing worth waiting for.
  _exit(code);
}
