// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/training_progress.h"

#include <criterion/criterion.h>

using namespace swell::sim;

Test(training_progress, time_trained_counts_and_time_stood_still_does_not) {
  TrainingProgress progress(1000);
  cr_assert_eq(progress.left(50), 1000, "it has not begun");
  progress.begin(100);
  progress.set_rate(2, 100);
  cr_assert_eq(progress.left(110), 980);
  cr_assert_eq(progress.ends_s(), 600);
  progress.set_rate(0, 200);
  cr_assert_eq(progress.left(5000), 800);
  progress.set_rate(4, 300);
  cr_assert_eq(progress.ends_s(), 500);
  cr_assert_eq(progress.left(1000), 0, "never below");
  cr_assert_eq(progress.iterations(), 1000);
}

Test(training_progress, a_failure_costs_what_was_done_since_the_last_checkpoint) {
  TrainingProgress progress(100000);
  progress.begin(0);
  progress.set_rate(1, 0);
  progress.advance(4000);
  cr_assert_eq(progress.left(4000), 96000);
  progress.fall_back(4000);
  cr_assert_eq(progress.left(4000), 96400, "one was written every half hour: the last at 3,600 s");
  progress.advance(5000);
  progress.fall_back(5000);
  cr_assert_eq(progress.left(5000), 96400, "no other since");
}

Test(training_progress, checkpoints_have_what_was_done_at_their_time) {
  TrainingProgress progress(100000);
  progress.begin(0);
  progress.set_rate(1, 0);
  progress.set_rate(0, 1000);  // stands still at the checkpoint of 1,800 s
  progress.set_rate(10, 2000);
  progress.advance(3000);
  progress.fall_back(3000);
  cr_assert_eq(progress.left(3000), 99000);
}

Test(training_progress, each_new_rate_voids_the_end_that_was_planned) {
  TrainingProgress progress(10);
  const long before = progress.stamp();
  progress.set_rate(1, 0);
  const long first = progress.stamp();
  progress.advance(5);
  cr_assert_eq(progress.stamp(), first);
  progress.set_rate(1, 5);
  cr_assert(before != first && first != progress.stamp());
}

Test(training_progress, a_job_that_is_suspended_goes_on_with_what_is_left) {
  TrainingProgress progress(1000);
  progress.begin(0);
  progress.set_rate(1, 0);
  progress.set_rate(0, 300);
  progress.begin(900);
  progress.set_rate(1, 900);
  cr_assert_eq(progress.left(1000), 600);
}
