// SPDX-License-Identifier: GPL-2.0-or-later
// What the controller hands to the history, and what it answers who asks for it.
#include <algorithm>
#include <chrono>
#include <criterion/criterion.h>
#include <string>
#include <thread>

#include "unit/controller/world.h"

using namespace swell;
using namespace swell::test;

namespace {

/// A world with a history.
struct Recorded : World {
  controller::History kept{
      {std::filesystem::path(state_path).parent_path() / "history.sqlite", 90, {}, {}}};
  control::ConnectionId asker = 50;

  Recorded() {
    history = &kept;
    restart();
  }
  ~Recorded() { controller.reset(); }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

  /// The events that the controller answers with.
  Json events(control::Ask ask) {
    ask.what = "history";
    server.sent.clear();
    server.says(++asker, ask);
    const control::Answer* answer = nullptr;
    for (int i = 0; i < 5000 && answer == nullptr; ++i) {
      step(0.001);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      answer = server.last<control::Answer>();
    }
    cr_assert_not_null(answer);
    return answer->details.at("events");
  }
  const controller::ElasticJob& job() const { return controller->jobs().at(10); }
  /// Keeps `table` as that of job 10, and begins anew, as after kill -9 of slurmctld.
  void restart_with(const std::string& table) {
    slurm.run_elastic(10, "node1", 8);
    step();
    kept.add(controller::history::Scale{10, table});
    restart();
  }
  template <typename Done>
  bool until(Done done) {
    for (int i = 0; i < 5000 && !done(); ++i) {
      step(0.001);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return done();
  }
};

constexpr const char* kTable =
    R"({"version":1,"source":"running-job","rows":[{"gpus":8,"samples_per_s":40,)"
    R"("peak_bytes":6e10,"plan":"4L dp8 tp1"},{"gpus":12,"samples_per_s":58,"peak_bytes":5e10,)"
    R"("plan":"4L dp12 tp1"},{"gpus":16,"samples_per_s":58.5,"peak_bytes":5e10,)"
    R"("plan":"4L dp16 tp1","omitted":"no-gain"}]})";

}  // namespace

Test(records, a_forced_cancellation_is_in_the_jobs_history) {
  Recorded world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  world.slurm.wait(30, 8);
  world.step();
  world.step(22);
  cr_assert_eq(world.slurm.cancelled.size(), 1u);
  int cancelled = 0;
  for (const Json& event : world.events({10}).items()) {
    if (event.string_at("event").value() != "cancel") continue;
    ++cancelled;
    cr_assert_eq(event.integer_at("companion", 0, 99).value(), world.slurm.cancelled[0]);
    cr_assert_not(event.string_at("reason").value().empty());
  }
  cr_assert_eq(cancelled, 1);
}

Test(records, a_request_for_the_last_changes_gets_no_more) {
  Recorded world;
  world.slurm.run_elastic(10, "node1", 8);
  world.hello(1, 10, 8);
  world.take_offers(1, 20);
  cr_assert_gt(world.events({10}).size(), 4u);
  control::Ask ask{10};
  ask.last = 2;
  const Json events = world.events(ask);
  cr_assert_eq(events.size(), 2u);
  for (const Json& event : events.items())
    cr_assert_eq(event.string_at("event").value(), "companion-started");
}

Test(records, a_kept_scale_table_is_read_again_after_a_restart) {
  Recorded world;
  world.restart_with(kTable);
  cr_assert(world.controller->jobs().empty());
  cr_assert(world.until([&] {
    return world.controller->jobs().contains(10) && !world.job().decision.scale().rows.empty();
  }));
  cr_assert(world.job().decision.scale() == planner::NamedTable::parse(kTable).value());
  control::Ask ask{10};
  ask.what = "why";
  world.server.says(++world.asker, ask);
  world.step();
  const auto* answer = world.server.last<control::Answer>();
  cr_assert_not_null(answer);
  cr_assert_eq(answer->details.at("scale").size(), 3u);
  cr_assert_eq(answer->details.string_at("scale_source").value(), "running-job");
  const std::string& text = answer->text;
  cr_assert_neq(text.find("with 12 GPUs it would do 1.45 times as much as with 8, by 4L dp12 tp1; "
                          "predicted from its profile"),
                std::string::npos, "%s", text.c_str());
  cr_assert_neq(text.find("left out of its scale table: 16 GPUs: no significant gain"),
                std::string::npos, "%s", text.c_str());
}

Test(records, a_kept_scale_table_that_cannot_be_read_is_named_and_not_used) {
  Recorded world;
  world.restart_with(std::string(kTable).substr(0, 90));
  const auto is_said = [&] {
    return std::any_of(world.said.begin(), world.said.end(), [](const std::string& line) {
      return line.find("job 10: its kept table is not used: the scale table is cut off") !=
             std::string::npos;
    });
  };
  cr_assert(world.until(is_said));
  cr_assert(world.job().decision.scale().rows.empty());
}

Test(records, the_history_shows_rows_and_source_of_a_scale_table) {
  Recorded world;
  world.slurm.run_elastic(10, "node1", 8);
  world.step();
  world.kept.add(controller::history::Scale{10, kTable});
  for (const Json& event : world.events({10}).items()) {
    if (event.string_at("event").value() != "scale") continue;
    cr_assert_eq(event.at("table").size(), 3u);
    cr_assert_eq(event.at("table").at(2).string_at("omitted").value(), "no-gain");
    cr_assert_eq(event.string_at("source").value(), "running-job");
    return;
  }
  cr_assert_fail("no scale table");
}
