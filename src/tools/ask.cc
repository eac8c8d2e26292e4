// SPDX-License-Identifier: GPL-2.0-or-later
// swell pause, resume, max, replan and why: what a job's owner asks of the controller in slurmctld.
#include <fmt/format.h>
#include <memory>

#include "control/messages.h"
#include "tools/commands.h"
#include "tools/controller_client.h"
#include "tools/files.h"
#include "tools/history_pages.h"
#include "tools/history_rows.h"
#include "tools/job_word.h"
#include "tools/output.h"

namespace swell::tools {

namespace {

/// Number of lines of the history that `swell why` shows.
constexpr int kLastChanges = 6;

struct Options {
  control::Ask ask;
  std::string job, plan_file, schedule;
  bool json = false;
};

Result<Json> plan_in(const std::string& path) {
  auto json = read_json(path);
  if (!json) return json;
  // The output of `swell plan --json` has the plan as a member.
  return json->has("plan") ? json->at("plan") : *json;
}

int ask(const Options& options) {
  control::Ask message = options.ask;
  const Result<slurm::JobId> job = job_of(options.job);
  if (!job) return fail(job.error());
  message.job = *job;
  if (!options.plan_file.empty()) {
    auto plan = plan_in(options.plan_file);
    if (!plan) return fail(plan.error());
    message.plan = std::move(*plan);
  }
  if (is_file(options.schedule)) {
    auto text = read_file(options.schedule);
    if (!text) return fail(text.error());
    message.schedule = *std::move(text);
  } else {
    message.schedule = options.schedule;
  }
  if (message.what == "replan" && !is_object(message.plan) && message.schedule.empty())
    return fail(Error("replan needs --plan FILE or --schedule NAME"));
  const Result<control::Answer> answer = ask_controller(message);
  if (!answer) return fail(answer.error());
  std::vector<std::string> changes;
  if (message.what == "why")
    if (const Result<Json> history = recent_history(message.job, kLastChanges, ask_controller))
      changes = last_changes(*history, kLastChanges);
  if (!options.json) {
    write_text(fmt::format("Job {}: {}\n", message.job, answer->text));  // of several lines
    for (const std::string& line : changes) say("{}\n", line);
    return 0;
  }
  Json json = is_object(answer->details) ? answer->details : Json::object({{"job", message.job}});
  json.set("text", answer->text);
  if (message.what == "why") json.set("last_changes", array_of(changes));
  write_json(json);
  return 0;
}

CLI::App* add(CLI::App& app, const std::shared_ptr<Options>& options, const char* name,
              const char* help) {
  options->ask.what = name;
  CLI::App* command = app.add_subcommand(name, help);
  command->add_option("job", options->job, "The elastic job")
      ->type_name("JOBID")
      ->check(wrong_job_word)
      ->required();
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
  CLI::App* const command =
      add(app, options, "replan", "Have a live job run another plan on the GPUs that it has");
  CLI::Option* const plan =
      command->add_option("--plan", options->plan_file, "The plan, as SWELL_PLAN has it")
          ->type_name("FILE");
  command
      ->add_option("--schedule", options->schedule,
                   "The plan that runs, under this schedule: a name, or a file")
      ->type_name("NAME")
      ->excludes(plan);
  return [options] { return ask(*options); };
}

}  // namespace swell::tools
