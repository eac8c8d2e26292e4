// SPDX-License-Identifier: GPL-2.0-or-later
// Tests what a change of workers costs a training, against its usual steps.
#include "launcher/lost_time.h"

#include <criterion/criterion.h>

using swell::launcher::LostTime;

namespace {

/// A training that is looked at once a second.
struct Training {
  LostTime lost;
  double now = 100, step_s = 0.1, next_look = 100;
  int generation = 0;
  std::uint64_t step = 0;

  void make(std::uint64_t steps) {
    for (std::uint64_t i = 0; i < steps; ++i) {
      now += step_s;
      ++step;
      if (now < next_look) continue;
      next_look = now + 1;
      lost.passed(now, generation, step);
    }
  }
  /// A change that takes `seconds`, to steps of `new_step_s`.
  void change(double seconds, double new_step_s, bool says_step = true) {
    const double began = now;
    now += seconds;
    step_s = new_step_s;
    ++generation;
    lost.changed(began, generation, says_step ? step : 0);
    if (says_step)
      lost.passed(now, generation, step);  // it has taken that step over, and made none
  }
};

}  // namespace

Test(lost_time, a_stop_counts_less_the_steps_made_before_and_after) {
  Training training;
  training.make(95);  // the last look was before the last boundary
  training.change(0.75, 0.05);
  cr_assert_not(training.lost.last());  // nothing is known yet
  training.make(200);
  cr_assert(training.lost.last());
  cr_assert_eq(training.lost.last()->generation, 1);
  cr_assert_float_eq(training.lost.last()->lost_s, 0.75, 1e-6);
}

Test(lost_time, slow_first_steps_count) {
  Training training;
  training.make(100);
  training.change(0, 0.3);
  training.make(2);
  training.step_s = 0.1;
  training.make(100);
  cr_assert(training.lost.last());
  cr_assert_float_eq(training.lost.last()->lost_s, 0.4, 1e-6);
}

Test(lost_time, nothing_is_said_where_steps_are_counted_anew) {
  Training training;
  training.make(100);
  training.change(1, 0.1, false);
  training.step = 0;
  training.make(200);
  cr_assert_not(training.lost.last());
}

Test(lost_time, nothing_is_said_where_steps_vary_by_more) {
  Training training;
  training.make(100);
  training.change(0.1, 0.02);
  training.make(20);  // faster than they are later on
  training.step_s = 0.1;
  training.make(100);
  cr_assert_not(training.lost.last());
}

Test(lost_time, a_change_that_costs_nothing_is_said_to) {
  Training training;
  training.make(100);
  training.change(0, 0.1);
  training.make(100);
  cr_assert(training.lost.last());
  cr_assert_float_eq(training.lost.last()->lost_s, 0, 1e-6);
}

Test(lost_time, nothing_is_said_without_usual_steps) {
  Training training;
  training.make(12);  // one look
  training.change(1, 0.1);
  training.make(100);
  cr_assert_not(training.lost.last());
  training.change(1, 0.1);
  training.make(10);  // too few to know the new plan's
  cr_assert_not(training.lost.last());
  training.change(2, 0.1);  // the change before is left
  training.make(100);
  cr_assert_not(training.lost.last());  // nor was there a usual step before this one
  training.change(2, 0.1);
  training.make(100);
  cr_assert(training.lost.last());
  cr_assert_eq(training.lost.last()->generation, 4);
}
