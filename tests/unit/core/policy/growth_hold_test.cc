// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/growth_hold.h"

#include <criterion/criterion.h>
#include <functional>
#include <vector>

using namespace swell::policy;

namespace {

struct Hold {
  GrowthHold hold;
  std::function<void(GrowthFacts&)> set;
};

/// Each hold with the fact that alone causes it, the first ones first.
const std::vector<Hold>& holds() {
  static const std::vector<Hold> all = {
      {GrowthHold::paused, [](GrowthFacts& facts) { facts.is_paused = true; }},
      {GrowthHold::no_agent, [](GrowthFacts& facts) { facts.has_agent = false; }},
      {GrowthHold::refuses, [](GrowthFacts& facts) { facts.refuses = true; }},
      {GrowthHold::not_running, [](GrowthFacts& facts) { facts.is_running = false; }},
      {GrowthHold::preempted, [](GrowthFacts& facts) { facts.is_preempted = true; }},
      {GrowthHold::ends_soon, [](GrowthFacts& facts) { facts.left_s = 119.9; }},
      {GrowthHold::falls_short, [](GrowthFacts& facts) { facts.falls_short = true; }},
      {GrowthHold::at_its_limit, [](GrowthFacts& facts) { facts.is_at_its_limit = true; }},
      {GrowthHold::profile_refused, [](GrowthFacts& facts) { facts.is_profile_refused = true; }},
      {GrowthHold::profile_needed, [](GrowthFacts& facts) { facts.lends_without_profile = false; }},
      {GrowthHold::profile_awaited, [](GrowthFacts& facts) { facts.awaits_profile = true; }},
      {GrowthHold::stays, [](GrowthFacts& facts) { facts.stays_until_s = 100.5; }},
      {GrowthHold::backs_off, [](GrowthFacts& facts) { facts.grows_after_s = 100.5; }},
      {GrowthHold::changing, [](GrowthFacts& facts) { facts.is_settled = false; }},
  };
  return all;
}

GrowthFacts free_job() {
  GrowthFacts facts;
  facts.now_s = 100;
  facts.left_s = 120;
  facts.least_left_s = 120;
  return facts;
}

bool is_of_profile(GrowthHold hold) {
  return hold >= GrowthHold::profile_refused && hold <= GrowthHold::profile_awaited;
}

}  // namespace

Test(growth_hold, a_profile_is_awaited_by_steps_and_not_for_ever) {
  cr_assert_float_eq(profile_wait_left(30, 0, 10), 90, 1e-9);
  cr_assert_float_eq(profile_wait_left(30, 19, 10), 570, 1e-9);
  cr_assert_float_eq(profile_wait_left(5, 20, 10), 5, 1e-9);
  for (const std::int64_t steps : {0, 1, 19, 20}) {
    cr_assert_eq(profile_wait_left(600, steps, 10), 0);
    cr_assert_eq(profile_wait_left(0, steps, 0), 0, "ProfileWait=0 awaits none");
  }
}

// A program of equal steps is waited for just as long as whole_profile_wait() says.
Test(growth_hold, the_whole_wait_is_that_of_equal_steps) {
  for (const double step_s : {0.01, 0.4, 0.6, 3.0, 29.0, 31.0, 119.0, 121.0, 700.0}) {
    double now = 0;
    while (profile_wait_left(now, static_cast<std::int64_t>(now / step_s), 10) > 0) now += 0.005;
    cr_assert_float_eq(whole_profile_wait(step_s, 10), now, 0.02, "steps of %g s", step_s);
  }
}

Test(growth_hold, each_fact_alone_holds_a_job_back) {
  cr_assert(growth_hold(free_job()) == GrowthHold::none);
  for (const Hold& each : holds()) {
    GrowthFacts facts = free_job();
    each.set(facts);
    cr_assert(growth_hold(facts) == each.hold, "hold %d", static_cast<int>(each.hold));
  }
}

Test(growth_hold, returns_the_first_of_two) {
  for (std::size_t first = 0; first < holds().size(); ++first)
    for (std::size_t second = first + 1; second < holds().size(); ++second) {
      GrowthFacts facts = free_job();
      holds()[second].set(facts);
      holds()[first].set(facts);
      cr_assert(growth_hold(facts) == holds()[first].hold, "%zu and %zu", first, second);
    }
}

Test(growth_hold, a_job_that_is_owed_gpus_or_can_be_planned_needs_no_profile) {
  for (const Hold& each : holds()) {
    GrowthFacts owed = free_job(), planned = free_job();
    each.set(owed);
    each.set(planned);
    owed.is_owed_some = planned.can_be_planned = true;
    const GrowthHold expected = is_of_profile(each.hold) ? GrowthHold::none : each.hold;
    cr_assert(growth_hold(owed) == expected, "owed, hold %d", static_cast<int>(each.hold));
    cr_assert(growth_hold(planned) == expected, "planned, hold %d", static_cast<int>(each.hold));
  }
}

Test(growth_hold, for_want_of_a_profile_is_known_for_a_job_that_is_owed_gpus_too) {
  for (const Hold& each : holds()) {
    GrowthFacts facts = free_job();
    each.set(facts);
    facts.is_owed_some = true;
    cr_assert(profile_hold(facts) == (is_of_profile(each.hold) ? each.hold : GrowthHold::none));
    facts.can_be_planned = true;
    cr_assert(profile_hold(facts) == GrowthHold::none);
  }
}

Test(growth_hold, of_two_times_the_later_one_is_named) {
  GrowthFacts facts = free_job();
  facts.stays_until_s = 101;
  facts.grows_after_s = 102;
  cr_assert(growth_hold(facts) == GrowthHold::backs_off);
  facts.grows_after_s = 101;
  cr_assert(growth_hold(facts) == GrowthHold::stays);
  facts.now_s = 101;
  cr_assert(growth_hold(facts) == GrowthHold::none, "the moment itself is free");
}
