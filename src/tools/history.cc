// SPDX-License-Identifier: GPL-2.0-or-later
// swell history: what has happened to an elastic job, running or ended.
#include <fmt/format.h>
#include <memory>

#include "control/input_file.h"
#include "controller/history_store.h"
#include "tools/commands.h"
#include "tools/controller_client.h"
#include "tools/files.h"
#include "tools/history_pages.h"
#include "tools/history_rows.h"
#include "tools/job_word.h"
#include "tools/output.h"

namespace swell::tools {

namespace {

struct Options {
  std::string job, file;
  bool json = false;
};

Result<Json> in_file(const Options& options, control::JobId job) {
  if (const auto good = control::check_regular(options.file); !good) return good.error();
  const auto store =
      controller::HistoryStore::open(options.file, controller::HistoryStore::Access::read);
  if (!store) return store.error();
  return all_pages([&](std::int64_t after) {
    return store->of_job(job, std::nullopt, after, std::size_t{1} << 20, options.json);
  });
}

int show(const Options& options) {
  const Result<slurm::JobId> job = job_of(options.job);
  if (!job) return fail(job.error());
  const Result<Json> found = options.file.empty()
                                 ? whole_history(*job, options.json, ask_controller)
                                 : in_file(options, *job);
  if (!found) return fail(found.error());
  if (options.json) write_json(*found);
  else write_text(history_table(*found));
  return 0;
}

}  // namespace

Action add_history(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("history", "What has happened to an elastic job, running or ended");
  command->add_option("job", options->job, "The elastic job")
      ->type_name("JOBID")
      ->check(wrong_job_word)
      ->required();
  command->add_flag("--json", options->json, "Print JSON, as swell(1) describes");
  command
      ->add_option("--file", options->file,
                   "Read swell_history.sqlite of StateSaveLocation, rather than ask slurmctld")
      ->type_name("FILE");
  return [options] { return show(*options); };
}

}  // namespace swell::tools
