// SPDX-License-Identifier: GPL-2.0-or-later
// swell jobs: lists the elastic jobs and what they are lent, from Slurm's records alone.
#include <fmt/format.h>
#include <memory>
#include <pwd.h>

#include "core/number.h"
#include "slurm/live_slurm.h"
#include "tools/commands.h"
#include "tools/job_rows.h"
#include "tools/job_word.h"
#include "tools/live_snapshot.h"
#include "tools/output.h"

namespace swell::tools {

namespace {

struct Options {
  std::string user;
  std::vector<std::string> ids;
  bool json = false;
};

Result<uid_t> uid_of(const std::string& user) {
  if (const passwd* entry = getpwnam(user.c_str())) return entry->pw_uid;
  if (const auto uid = read_number<uid_t>(user)) return *uid;
  return Error(fmt::format("there is no user \"{}\"", user));
}

Result<std::vector<JobRow>> look(const Options& options) {
  JobFilter filter;
  for (const std::string& word : options.ids) {
    const Result<slurm::JobId> job = job_of(word);
    if (!job) return job.error();
    filter.ids.push_back(*job);
  }
  if (!options.user.empty()) {
    const Result<uid_t> uid = uid_of(options.user);
    if (!uid) return uid.error();
    filter.uid = *uid;
  }
  const Result<slurm::Snapshot> snapshot = load_snapshot();
  if (!snapshot) return snapshot.error();
  return job_rows(*snapshot, filter);
}

int show(const Options& options) {
  const Result<std::vector<JobRow>> rows = look(options);
  if (!rows) return fail(rows.error());
  if (options.json) write_json(jobs_json(*rows));
  else if (rows->empty()) write_text(no_jobs_text(slurm::load_controller_config()));
  else write_text(jobs_table(*rows));
  return 0;
}

}  // namespace

Action add_jobs(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("jobs", "Elastic jobs and the GPUs they are lent");
  command->add_option("-u,--user", options->user, "Only this user's jobs")->type_name("USER");
  command->add_flag("--json", options->json, "Print JSON, as swell(1) describes");
  command->add_option("jobs", options->ids, "Only these jobs")
      ->type_name("JOBID")
      ->check(wrong_job_word)
      ->option_text("[JOBID]...");
  return [options] { return show(*options); };
}

}  // namespace swell::tools
