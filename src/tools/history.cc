// SPDX-License-Identifier: GPL-2.0-or-later
// swell history: what has happened to an elastic job, running or ended.
#include "tools/history.h"

#include <fmt/format.h>
#include <memory>

#include "controller/history_store.h"
#include "tools/commands.h"
#include "tools/controller_client.h"
#include "tools/history_rows.h"

namespace swell::tools {

namespace {

struct Options {
  control::JobId job = 0;
  std::string file;
  bool json = false;
};

/// Pages, one after the other; `page` gives what follows an event's id.
template <typename Page>
Result<Json> all_pages(Page page) {
  Json events = Json::array();
  for (std::int64_t after = 0;;) {
    Result<Json> found = page(after);
    if (!found) return found;
    for (const Json& event : found->at("events").items()) {
      if (const auto id = event.integer_at("id", 1, std::int64_t{1} << 53)) after = *id;
      events.append(event);
    }
    const auto more = found->bool_at("more");
    if (!more) return more.error();
    if (!*more)
      return Json::object(
          {{"job", found->at("job")}, {"jobs", found->at("jobs")}, {"events", events}});
  }
}

Result<Json> in_file(const Options& options) {
  const auto store =
      controller::HistoryStore::open(options.file, controller::HistoryStore::Access::read);
  if (!store) return store.error();
  return all_pages([&](std::int64_t after) {
    return store->of_job(options.job, std::nullopt, after, std::size_t{1} << 20);
  });
}

int show(const Options& options) {
  const Result<Json> found = options.file.empty() ? whole_history(options.job) : in_file(options);
  if (!found) {
    fmt::print(stderr, "swell: {}\n", found.error().message());
    return 1;
  }
  fmt::print("{}", options.json ? found->dump_pretty() : history_table(*found));
  return 0;
}

}  // namespace

Result<Json> whole_history(control::JobId job) {
  return all_pages([&](std::int64_t after) -> Result<Json> {
    control::Ask ask;
    ask.job = job;
    ask.what = "history";
    ask.number = static_cast<int>(after);
    const Result<control::Answer> answer = ask_controller(ask);
    if (!answer) return answer.error();
    return answer->details;
  });
}

Action add_history(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("history", "What has happened to an elastic job, running or ended");
  command->add_option("job", options->job, "The elastic job")->type_name("JOBID")->required();
  command->add_flag("--json", options->json, "Print JSON, as swell(1) describes");
  command
      ->add_option("--file", options->file,
                   "Read swell_history.sqlite of StateSaveLocation, rather than ask slurmctld")
      ->type_name("FILE");
  return [options] { return show(*options); };
}

}  // namespace swell::tools
