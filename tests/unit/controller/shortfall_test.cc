// SPDX-License-Identifier: GPL-2.0-or-later
// What is said of a job whose lent GPUs bring less than was promised, and when no more.
#include <criterion/criterion.h>
#include <string>

#include "unit/controller/live_world.h"

using namespace swell;
using namespace swell::controller;
using swell::test::kEight;
using swell::test::Live;
using swell::test::Reported;

namespace {

/// Job 10 with 8 lent GPUs on node2 that brought it nothing: the trial has begun.
struct FallsShort : Live {
  FallsShort() {
    report({.gpus = kEight});
    cr_assert(grown());
    take_offers(20);
    slow(1.9, 1);
  }
  void slow(double step_factor, int generation) {
    Reported slow{.gpus = kEight, .step_factor = step_factor, .generation = generation};
    slow.lent_node = "node2";
    report(slow);
  }
  control::Answer why() { return ask("why"); }
  std::string waits() { return why().details.string_at("waits_for").value(); }
  bool has(const std::string& text, const char* words) {
    return text.find(words) != std::string::npos;
  }
};

}  // namespace

Test(shortfall, its_owner_reads_what_follows_and_no_more_once_that_is_over) {
  FallsShort world;
  std::string waits = world.waits();
  cr_assert(
      world.has(waits, "a gain below 5 %; unless it reports better within 19 s, they go back"),
      "%s", waits.c_str());
  world.step(20);
  world.slurm.end(20);
  world.step();
  waits = world.waits();
  cr_assert(world.has(waits, "a gain below 5 %; it is lent none for 598 s more"), "%s",
            waits.c_str());
  cr_assert(world.has(world.job().decision.why(), "a gain below 5 %"));
  for (const JobId rigid : {52, 53, 54})
    world.slurm.run(rigid, "node" + std::to_string(rigid - 50), 8, "");
  world.step(600);
  cr_assert(world.until([&] { return !world.has(world.job().decision.why(), "a gain below 5 %"); }),
            "%s", world.job().decision.why().c_str());
  const control::Answer answer = world.why();
  cr_assert_eq(answer.details.string_at("waits_for").value(),
               std::string("no GPU that it could use is idle"));
  cr_assert_not(world.job().trust.why().empty(), "nothing better was heard");
}

Test(shortfall, its_owner_reads_nothing_once_it_keeps_its_promise_after_all) {
  FallsShort world;
  world.step(20);
  world.slurm.end(20);
  world.server.sent.clear();
  world.step(620);
  cr_assert(world.grown());
  world.take_offers(21);
  world.slow(1, 2);
  const std::string text = world.why().text, &decided = world.job().decision.why();
  cr_assert(world.has(decided, "times as many as alone"), "%s", decided.c_str());
  cr_assert_not(world.has(decided, "a gain below 5 %"), "%s", decided.c_str());
  cr_assert(world.job().trust.why().empty(), "%s", world.job().trust.why().c_str());
  cr_assert_not(world.has(text, "it takes no more now: lent GPUs made it"), "%s", text.c_str());
}
