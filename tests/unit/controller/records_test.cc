// SPDX-License-Identifier: GPL-2.0-or-later
// What the controller hands to the history, and what it answers who asks for it.
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
};

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

Test(records, who_asks_for_the_last_changes_gets_no_more) {
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
