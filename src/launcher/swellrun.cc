// SPDX-License-Identifier: GPL-2.0-or-later
// swellrun: runs a training program on all GPUs of a job, elastic or not. man swellrun.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio_ext.h>
#include <thread>
#include <unistd.h>

#include "config.h"
#include "control/swell_conf.h"
#include "core/count_of.h"
#include "core/number.h"
#include "launcher/agent.h"
#include "launcher/container.h"
#include "launcher/interface.h"
#include "launcher/model_file.h"
#include "launcher/no_growth_report.h"
#include "launcher/node_look.h"
#include "launcher/other_launcher.h"
#include "launcher/standard_files.h"
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

/// Returns the output of a Slurm command. If it fails, runs it again, `max_asks` times in all:
/// slurmctld may have died before it answered.
Result<std::string> answer_of(const std::vector<std::string>& command, int max_asks = kAsks) {
  const auto began = std::chrono::steady_clock::now();
  const std::chrono::duration<double> pause(kAskAgain_s), limit(kScontrolSeconds);
  for (int asks = 1;; ++asks) {
    auto text = Children::output_of(command, outside_environment(environ), kScontrolSeconds);
    if (text || asks == max_asks || std::chrono::steady_clock::now() - began > limit) return text;
    std::this_thread::sleep_for(pause);
  }
}

/// Returns how slurmctld is reached and trusted.
Result<SlurmConfig> slurm_config() {
  const auto text = answer_of({"scontrol", "show", "config"});
  if (!text) return text.error();
  return read_config(*text);
}

/// Returns the port at which the controller would listen; the error says why there is none.
Result<std::uint16_t> controller_port(const SlurmConfig& config) {
  const auto conf = control::swell_conf_on_node(std::getenv("SLURM_CONF"), config.conf_file,
                                                std::getenv("SWELL_CONTROL_PORT"));
  if (!conf) return conf.error();
  return static_cast<std::uint16_t>(conf->control_port);
}

/// Returns the descriptions that the nodes publish; nothing if Slurm does not say.
std::map<std::string, cluster::NodeDescription> descriptions_of(
    const std::vector<WorkerNode>& nodes) {
  std::string names;
  for (const WorkerNode& node : nodes) names += (names.empty() ? "" : ",") + node.name;
  const auto text = answer_of({"scontrol", "show", "node", names});
  return text ? read_descriptions(*text) : std::map<std::string, cluster::NodeDescription>();
}

/// Facts of the job that swellrun runs in.
struct Job {
  JobId id = 0;
  JobFacts facts;
  std::vector<NodeShare> shares;
  control::ElasticSpec spec;
  std::string rigid;  ///< why it cannot be lent anything; empty: it can
  ControllerAddress controller;
};

/// Returns a text that the job's user chose.
Result<std::string> user_text(const std::string& id, const char* field) {
  auto text = answer_of(job_text_command(id, field));
  if (text && text->ends_with('\n')) text->pop_back();
  return text;
}

/// Returns the job's shares of its nodes as scontrol shows them. `id` as in JobFacts.
Result<std::vector<NodeShare>> shown_shares(JobId job, const std::string& id, int max_asks) {
  const auto text = answer_of({"scontrol", "-d", "show", "job", id}, max_asks);
  if (!text) return text.error();
  const auto name = user_text(id, "%j");
  if (!name) return name.error();
  UserTexts known = {{"JobName", *name}};
  if (text->find(" WCKey=") != std::string::npos)
    if (const auto key = user_text(id, "%w")) known.emplace_back("WCKey", *key);
  return read_job(*text, job, known);
}

/// Returns the job's shares of its nodes as scontrol shows them, else as a step on them sees them.
Result<std::vector<NodeShare>> shares_of(JobId job, const JobFacts& facts) {
  if (auto shown = shown_shares(job, facts.id, 1)) return shown;
  if (facts.nodes > 0 && facts.owner == geteuid()) {
    auto looked = Children::output_of(node_look_command(job, facts.nodes),
                                      outside_environment(environ), kScontrolSeconds);
    if (looked)
      if (auto seen = read_node_look(*looked, facts.nodes, facts.wanted_gpus)) return seen;
  }
  return shown_shares(job, facts.id, kAsks);
}

/// Looks up the job. The error says why swellrun cannot run workers on it.
Result<Job> look_up(const SlurmConfig& config, JobId id) {
  Job job;
  job.id = id;
  const auto lines = answer_of(job_facts_command(id));
  if (!lines) return lines.error();
  const auto facts = read_job_facts(*lines, id);
  if (!facts) return Error(fmt::format("squeue does not show job {}", id));
  job.facts = *facts;
  if (facts->owner != geteuid() && geteuid() != 0)
    return Error(fmt::format("job {} belongs to another user", id));
  auto shares = shares_of(id, *facts);
  if (!shares) return shares.error();
  job.shares = std::move(*shares);
  const bool has_gpus = std::any_of(job.shares.begin(), job.shares.end(),
                                    [](const NodeShare& share) { return share.gpus > 0; });
  if (!has_gpus && !facts->wanted_gpus.empty())
    return Error(
        fmt::format("Slurm gave job {} none of the GPUs that it asked for ({}), which happens just "
                    "after a start of slurmctld; `scontrol requeue {}` starts it again",
                    id, facts->wanted_gpus, id));

  const auto comment = answer_of(admin_comment_command(facts->id));
  if (!comment) return comment.error();
  job.controller = {config.controllers, 0, config.munge_socket, config.slurm_user};
  if (const auto tag = read_tag(*comment); !tag) {
    // Swell's SPANK plugin in sbatch sets the variable for jobs with --elastic.
    job.rigid =
        std::getenv("SWELL_JOB_IS_ELASTIC") == nullptr
            ? fmt::format("job {} was not submitted with --elastic", id)
            : fmt::format(
                  "job {} was submitted with --elastic, but its AdminComment does not say so "
                  "any more: another plugin of job_submit or scontrol has replaced it",
                  id);
  } else if (const auto spec = control::ElasticSpec::parse(tag->get("elastic")); !spec) {
    job.rigid = spec.error().while_doing(fmt::format("the AdminComment of job {}", id)).message();
  } else if (const auto port = controller_port(config); !port) {
    job.rigid = "no Swell controller: " + port.error().message();
  } else {
    job.spec = *spec;
    job.controller.port = *port;
  }
  return job;
}

control::Hello hello_of(const Job& job) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  control::Hello hello;
  hello.job = job.id;
  hello.host = host;
  for (const NodeShare& share : job.shares) hello.workers += share.gpus;
  return hello;
}

/// Returns an agent's setup for these workers. `model`: what is trained, if its user says so.
Result<Agent::Setup> setup_of(const Options& options, const Json& model, const SlurmConfig& config,
                              const Job& job, BasicWorkers basic) {
  Agent::Setup setup;
  setup.options = options;
  setup.munge_socket = config.munge_socket;
  setup.slurmctld_since = config.slurmctld_since;
  setup.srun_ports = config.srun_ports;
  setup.controller = job.controller;
  setup.spec = job.spec;
  setup.elastic = job.rigid.empty();
  setup.shim =
      env("SWELL_WORKER").empty() ? SWELL_PKGLIBEXECDIR "/swell-worker" : env("SWELL_WORKER");
  if (access(setup.shim.c_str(), X_OK) != 0)
    return Error(fmt::format("{}: {}", setup.shim, std::strerror(errno)));
  setup.shim_munge_socket = config.munge_socket;
  if (is_in_container(options, environ)) {
    ContainerShim inside = container_shim(setup.shim, config.munge_socket, own_libraries());
    add_mounts(setup.options, environ, inside.mounts);
    setup.shim = std::move(inside.command.back());
    inside.command.pop_back();
    setup.loader = std::move(inside.command);
    setup.shim_munge_socket = std::move(inside.munge_socket);
  }
  setup.hello = hello_of(job);
  // hello_of() counts all GPUs of the job, whatever uses them: right for a job that cannot grow.
  if (basic.no_growth.empty()) {
    setup.hello.workers = basic.workers;
    setup.hello.gpus_per_worker = basic.gpus_per_worker;
  }
  setup.basic = std::move(basic);
  const bool is_live = setup.elastic && setup.spec.mode == control::Mode::live;
  if (is_live) setup.hello.model = model;
  const std::string& network = options.switch_network;
  setup.wants_ports = is_live && (network == "auto" || network == "nccl" || network == "ucx");
  if (setup.wants_ports) setup.descriptions = descriptions_of(setup.basic.nodes);
  return setup;
}

/// Tells the user what to know before the program runs.
void say_before(const Agent::Setup& setup, const Job& job, const Json& model) {
  if (setup.basic.shares_cpus)
    say(fmt::format(
        "the job has fewer CPUs than its {}: they share them; ask for more with sbatch --cpus-per-gpu=N",
        count_of(setup.basic.workers, "worker")));
  if (is_object(model) && !is_object(setup.hello.model))
    say("--model is not used: without --elastic=mode=live no program reports what it does, and "
        "nobody could check it");
  for (const std::string& option : setup.options.left_out)
    say(fmt::format("{} is not used: srun starts swell-worker, which starts the program", option));
  if (const std::string address = env("MASTER_ADDR"), port = env("MASTER_PORT");
      !address.empty() || !port.empty())
    say(fmt::format(
        "MASTER_ADDR={} MASTER_PORT={} are not used: each generation has an address and a "
        "port of its own; --interface=NAME chooses the network",
        address, port));
  const int gpus = setup.basic.gpus;
  const std::string& why = job.rigid.empty() ? setup.basic.no_growth : job.rigid;
  if (!why.empty())
    say(fmt::format("{}: training on its own {}, no more are lent", why, count_of(gpus, "GPU")));
}

/// Returns why swellrun cannot run within a step of srun, which holds the job's CPUs and GPUs: its
/// own steps would wait until that step ends. SLURM_STEP_ID alone does not show this: the script of
/// a job that was submitted in a step has it, too, and --overlap shares what the step has.
std::optional<std::string> problem_within_srun(const Agent::Setup& setup) {
  constexpr std::uint32_t kFirstSpecial = 0xfffffff0;  // the batch script, an interactive step
  const auto step = read_number<std::uint32_t>(env("SLURM_STEP_ID"));
  if (!step || *step >= kFirstSpecial) return std::nullopt;
  const ShimAddress shim{setup.shim, "", 0, "", false, false, setup.loader};
  const auto steps =
      step_commands(setup.options, setup.hello.job, {setup.hello.job, "", "", 0}, setup.basic.nodes,
                    setup.basic.cpus_per_worker, setup.basic.shares_cpus, shim);
  const auto done = Children::output_of(probe_of(steps.front(), shim), step_environment(environ),
                                        kScontrolSeconds);
  if (done) return std::nullopt;
  std::string why = done.error().message();
  why.erase(std::min(why.find('\n'), why.size()));
  return fmt::format("swellrun within srun: write swellrun in place of srun ({})", why);
}

/// Empties the file that all steps append to, if srun would empty it.
void begin_output(const Options& options, const RunNames& run, const SlurmConfig& config) {
  if (appends(options.open_mode, config.appends_output)) return;
  for (const std::optional<std::string>* name : {&options.output, &options.error})
    if (const auto file = shared_output(name->value_or(""), run))
      Descriptor(open(file->c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
}

/// Returns srun's help if `option` takes no next word as its value; else srun's error: that it
/// lacks a program, or does not know the option.
std::string what_srun_says(const std::string& option) {
  const auto said = Children::output_of({"srun", option, "--help"}, outside_environment(environ),
                                        kScontrolSeconds);
  return said ? *said : said.error().message();
}

int run_srun(const Options& options) {
  std::vector<const char*> words = {"srun"};
  for (const std::string& word : options.srun) words.push_back(word.c_str());
  words.push_back(nullptr);
  std::signal(SIGXFSZ, SIG_DFL);
  execvp("srun", const_cast<char**>(words.data()));
  const int problem = errno;
  say(std::string("cannot run srun: ") + std::strerror(problem));
  return problem == ENOENT ? 127 : 126;
}

void block_signals(bool block) {
  sigset_t handled;
  sigemptyset(&handled);
  for (const int each : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP})
    sigaddset(&handled, each);
  sigprocmask(block ? SIG_BLOCK : SIG_UNBLOCK, &handled, nullptr);
}

int run(int argc, char** argv) {
  const auto options = Options::parse(
      {argv + 1, argv + argc}, [](const char* name) -> const char* { return std::getenv(name); },
      what_srun_says);
  if (!options) {
    say(options.error().message());
    return 2;
  }
  if (options->help || options->version) {
    std::fputs(options->help ? help_text() : "swellrun " PACKAGE_VERSION "\n", stdout);
    return 0;
  }
  if (options->program.empty() && options->srun.empty()) {
    say("no program is given; write for example: swellrun python train.py");
    return 2;
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
  const auto id = read_number<JobId>(env("SLURM_JOB_ID"));
  if (id.value_or(0) == 0 || options->program.empty()) return run_srun(*options);
  std::string address;
  if (!options->interface.empty()) {
    auto chosen = choose_address(options->interface, interface_addresses());
    if (!chosen) {
      std::fprintf(stderr, "swellrun: %s\n", chosen.error().message().c_str());
      return 2;
    }
    address = std::move(*chosen);
  }
  const auto leave_to_srun = [&](const std::string& why, const Job* job) {
    say(why + ": running as srun");
    if (job != nullptr && job->rigid.empty()) {
      NoGrowthReport report{job->controller, hello_of(*job)};
      report.hello.no_growth = fmt::format("its swellrun runs as srun: {}", why);
      report_no_growth(report);
    }
    return run_srun(*options);
  };
  const auto config = slurm_config();
  if (!config) return leave_to_srun(config.error().message(), nullptr);
  const auto job = look_up(*config, *id);
  const Job* known = job ? &*job : nullptr;
  if (!options->plain_reason.empty()) return leave_to_srun(options->plain_reason, known);
  if (!job) return leave_to_srun(job.error().message(), nullptr);
  auto basic = basic_workers(*id, *options, job->shares);
  if (!basic) return leave_to_srun(basic.error().message(), known);
  auto setup = setup_of(*options, model, *config, *job, std::move(*basic));
  if (!setup) return leave_to_srun(setup.error().message(), known);
  if (const auto problem = problem_within_srun(*setup)) {
    std::fprintf(stderr, "swellrun: %s\n", problem->c_str());
    return 2;
  }
  setup->address = std::move(address);
  say_before(*setup, *job, model);
  begin_output(*options, names_of(*setup), *config);

  std::signal(SIGPIPE, SIG_IGN);
  block_signals(true);
  auto agent = Agent::start(std::move(*setup));
  if (!agent) {
    block_signals(false);
    std::signal(SIGPIPE, SIG_DFL);
    return leave_to_srun(agent.error().message(), known);
  }
  return (*agent)->run();
}

}  // namespace

int main(int argc, char** argv) {
  // If SIGCHLD is ignored, as by `trap '' CHLD` in a script, no child's end can be waited for.
  std::signal(SIGCHLD, SIG_DFL);
  // With `ulimit -f` a write that fails must not end the training.
  std::signal(SIGXFSZ, SIG_IGN);
  const bool has_output = open_standard_files();
  int code = 1;
  try {
    code = run(argc, argv);
  } catch (const std::exception& e) { say(e.what()); }
  // Help that could not be written counts as a failure.
  const bool is_lost = !has_output && __fpending(stdout) > 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || is_lost) {
    say("standard output cannot be written");
    code = code == 0 ? 1 : code;
  }
  std::fflush(nullptr);
  // Not exit(): a thread that still tries to reach the controller has nothing worth waiting for.
  _exit(code);
}
