// SPDX-License-Identifier: GPL-2.0-or-later
// swell pause, resume, max, replan and why: what a job's owner asks of the controller in slurmctld.
#include <chrono>
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <sstream>

#include "control/client.h"
#include "control/swell_conf.h"
#include "slurm/live_slurm.h"
#include "slurm/site_config.h"
#include "tools/commands.h"

namespace swell::tools {

namespace {

constexpr auto kConnectTime = std::chrono::seconds(5);
constexpr auto kAnswerTime = std::chrono::seconds(10);

struct Options {
  control::Ask ask;
  std::string plan_file;
  bool json = false;
};

/// Whom to ask, and as whom it must speak.
Result<control::Client::Options> controller_of(const slurm::ControllerConfig& slurm) {
  const auto conf = control::SwellConf::load(control::swell_conf_path(slurm.slurm_conf));
  if (!conf) return conf.error();
  if (!conf->enabled) return Error("swell.conf says Elasticity=no: nobody answers");
  control::Client::Options options;
  options.port = static_cast<std::uint16_t>(conf->control_port);
  options.munge_socket = slurm::munge_socket_of(slurm.auth_info);
  options.trust = [own = slurm.slurm_uid](uid_t uid) { return uid == own || uid == 0; };
  if (!conf->control_address.empty()) options.host = conf->control_address;
  return options;
}

Result<control::Answer> asked_at(const control::Client::Options& where, const control::Ask& ask) {
  auto client = control::Client::connect(where, kConnectTime);
  if (!client) return client.error();
  if (const auto sent = (*client)->send(ask); !sent) return sent.error();
  auto message = (*client)->receive(kAnswerTime);
  if (!message) return message.error();
  if (!*message)
    return Error(fmt::format("{}:{} does not answer: ask again", where.host, where.port));
  if (const auto* refused = std::get_if<control::Refused>(&**message))
    return Error(refused->reason);
  if (auto* answer = std::get_if<control::Answer>(&**message)) return std::move(*answer);
  return Error(fmt::format("{}:{} is no controller", where.host, where.port));
}

Result<control::Answer> asked(const control::Ask& ask) {
  slurm::init_libslurm();
  const auto config = slurm::load_controller_config();
  if (!config) return config.error().while_doing("asking slurmctld");
  auto where = controller_of(*config);
  if (!where) return where.error();
  if (!where->host.empty()) return asked_at(*where, ask);
  Result<control::Answer> answer = Error("slurm.conf names no SlurmctldHost");
  // Only the active slurmctld has a controller.
  for (const std::string& host : config->hosts) {
    where->host = host;
    answer = asked_at(*where, ask);
    if (answer) break;
  }
  return answer;
}

Result<Json> plan_in(const std::string& path) {
  std::ifstream in(path);
  if (!in) return Error(fmt::format("{} cannot be read", path));
  std::ostringstream text;
  text << in.rdbuf();
  auto json = Json::parse(text.str());
  if (!json) return json.error().while_doing(path);
  // What `swell plan --json` prints has the plan as a member.
  return json->has("plan") ? json->at("plan") : *json;
}

int ask(const Options& options) {
  control::Ask message = options.ask;
  if (!options.plan_file.empty()) {
    auto plan = plan_in(options.plan_file);
    if (!plan) {
      fmt::print(stderr, "swell: {}\n", plan.error().message());
      return 1;
    }
    message.plan = std::move(*plan);
  }
  const Result<control::Answer> answer = asked(message);
  if (!answer) {
    fmt::print(stderr, "swell: {}\n", answer.error().message());
    return 1;
  }
  if (!options.json) {
    fmt::print("Job {}: {}\n", message.job, answer->text);
    return 0;
  }
  Json json = answer->details.is_object() ? answer->details : Json::object({{"job", message.job}});
  json.set("text", answer->text);
  fmt::print("{}", json.dump_pretty());
  return 0;
}

CLI::App* add(CLI::App& app, const std::shared_ptr<Options>& options, const char* name,
              const char* help) {
  options->ask.what = name;
  CLI::App* command = app.add_subcommand(name, help);
  command->add_option("job", options->ask.job, "The elastic job")->type_name("JOBID")->required();
  command->add_flag("--json", options->json, "Print JSON, as swell(1) describes");
  return command;
}

Action add_plain(CLI::App& app, const char* name, const char* help) {
  auto options = std::make_shared<Options>();
  add(app, options, name, help);
  return [options] { return ask(*options); };
}

}  // namespace

Action add_pause(CLI::App& app) {
  return add_plain(app, "pause", "Lend a job no more GPUs until it is resumed");
}
Action add_resume(CLI::App& app) {
  return add_plain(app, "resume", "Lend a paused job GPUs again");
}
Action add_why(CLI::App& app) {
  return add_plain(app, "why", "Why a job has the GPUs that it has");
}
Action add_max(CLI::App& app) {
  auto options = std::make_shared<Options>();
  add(app, options, "max", "Set how many GPUs a job has at most")
      ->add_option("gpus", options->ask.number, "GPUs in all; 0: as --elastic says")
      ->type_name("GPUS")
      ->check(CLI::Range(0, 1'000'000))
      ->required();
  return [options] { return ask(*options); };
}
Action add_replan(CLI::App& app) {
  auto options = std::make_shared<Options>();
  add(app, options, "replan", "Have a live job run another plan on the GPUs that it has")
      ->add_option("--plan", options->plan_file, "The plan, as SWELL_PLAN has it")
      ->type_name("FILE")
      ->required();
  return [options] { return ask(*options); };
}

}  // namespace swell::tools
