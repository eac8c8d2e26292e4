// SPDX-License-Identifier: GPL-2.0-or-later
// swellrun: srun for elastic jobs. man swellrun.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <unistd.h>

#include "config.h"
#include "control/swell_conf.h"
#include "core/number.h"
#include "launcher/agent.h"

namespace {

using namespace swell;
using namespace swell::launcher;

constexpr double scontrol_s = 20;

std::string env(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// Why it is srun this time; no reason: nothing that the user needs to hear.
struct Plain {
  std::string reason;
};

/// Where the controller would be; an error where there is none.
Result<ControllerPlace> find_controller() {
  const auto text = Children::output_of({"scontrol", "show", "config"}, scontrol_s);
  if (!text) return text.error();
  const auto config = read_config(*text);
  if (!config) return config.error();
  ControllerPlace place;
  place.hosts = config->controllers;
  place.munge_socket = config->munge_socket;
  place.slurm_user = config->slurm_user;
  if (const std::string port = env("SWELL_CONTROL_PORT"); !port.empty()) {
    const auto value = read_number<std::uint16_t>(port);
    if (!value || *value == 0) return Error(fmt::format("SWELL_CONTROL_PORT={}: it must be a port", port));
    place.port = *value;
    return place;
  }
  const auto conf = control::SwellConf::load(control::swell_conf_path(config->conf_file));
  if (!conf) return conf.error();
  place.port = static_cast<std::uint16_t>(conf->control_port);
  return place;
}

/// An agent that has been welcomed, or why there is none.
Result<std::unique_ptr<Agent>> elastic(const Options& options, JobId job) {
  const auto controller = find_controller();
  if (!controller) return controller.error().while_doing("no Swell controller");
  const auto text = Children::output_of({"scontrol", "show", "job", "-d", std::to_string(job)}, scontrol_s);
  if (!text) return text.error();
  const auto shares = read_job(*text, job);
  if (!shares) return shares.error();
  auto shape = shape_of(job, options, *shares);
  if (!shape) return shape.error();

  Agent::Setup setup;
  setup.options = options;
  setup.controller = *controller;
  setup.munge_socket = controller->munge_socket;
  setup.shim = env("SWELL_WORKER").empty() ? SWELL_PKGLIBEXECDIR "/swell-worker" : env("SWELL_WORKER");
  if (access(setup.shim.c_str(), X_OK) != 0) return Error(fmt::format("{}: {}", setup.shim, std::strerror(errno)));
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  setup.hello.job = job;
  setup.hello.host = host;
  setup.hello.workers = shape->workers;
  setup.hello.gpus_per_worker = shape->gpus_per_worker;
  setup.hello.cpus_per_worker = shape->cpus_per_worker;
  setup.hello.memory_mib_per_worker = shape->memory_mib_per_worker;
  setup.shape = std::move(*shape);
  setup.greeting = greet(*controller, setup.hello);
  if (setup.greeting.refused) return Error(setup.greeting.reason);
  if (!setup.greeting.client)
    return Error(fmt::format("no Swell controller at {}:{} ({})", controller->hosts.front(), controller->port,
                             setup.greeting.reason));
  return Agent::start(std::move(setup));
}

int run_srun(const Options& options) {
  std::vector<const char*> words = {"srun"};
  for (const std::string& word : options.srun) words.push_back(word.c_str());
  words.push_back(nullptr);
  execvp("srun", const_cast<char**>(words.data()));
  std::fprintf(stderr, "swellrun: cannot run srun: %s\n", std::strerror(errno));
  return errno == ENOENT ? 127 : 126;
}

void block_signals(bool block) {
  sigset_t handled;
  sigemptyset(&handled);
  for (const int each : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) sigaddset(&handled, each);
  sigprocmask(block ? SIG_BLOCK : SIG_UNBLOCK, &handled, nullptr);
}

int run(int argc, char** argv) {
  const auto options = Options::parse({argv + 1, argv + argc}, [](const char* name) -> const char* { return std::getenv(name); });
  if (!options) {
    std::fprintf(stderr, "swellrun: %s\n", options.error().message().c_str());
    return 2;
  }
  if (options->help || options->version) {
    std::fputs(options->help ? help_text() : "swellrun " PACKAGE_VERSION "\n", stdout);
    return 0;
  }
  const auto job = read_number<JobId>(env("SLURM_JOB_ID"));
  if (job.value_or(0) == 0 || options->program.empty()) return run_srun(*options);
  if (!options->plain_reason.empty()) {
    say(options->plain_reason + ": running as srun");
    return run_srun(*options);
  }
  std::signal(SIGPIPE, SIG_IGN);
  block_signals(true);
  auto agent = elastic(*options, *job);
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
  } catch (const std::exception& e) {
    std::fprintf(stderr, "swellrun: %s\n", e.what());
  }
  std::fflush(nullptr);
  // Not exit(): a thread that still tries to reach the controller has nothing worth waiting for.
  _exit(code);
}
