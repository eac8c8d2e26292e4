// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/steps_left.h"

#include <criterion/criterion.h>

#include "unit/controller/live_world.h"

using namespace swell;
using namespace swell::controller;

Test(steps_left, steps_left_fall_between_two_reports) {
  StepsLeft steps;
  cr_assert_not(steps.left(0, 2), "nothing was said");
  steps.heard(0, 10, 110, 2);
  cr_assert_eq(*steps.left(0, 2), 100);
  cr_assert_eq(*steps.left(50, 2), 75, "it went on meanwhile");
  cr_assert_eq(*steps.left(500, 2), 70, "not for ever");
  cr_assert_not(steps.left(0, 0), "no profile");
  steps.heard(1, 10, 0, 2);
  cr_assert_eq(*steps.left(1, 2), 100, "it has said its end");
}

Test(steps_left, a_training_that_hangs_comes_no_nearer_to_its_end) {
  StepsLeft silent, repeats, slow;
  for (StepsLeft* each : {&silent, &repeats}) each->heard(0, 10, 1000, 1);
  slow.heard(0, 10, 1000, 300);
  for (int second = 20; second <= 500; second += 20) {
    repeats.heard(second, 10, 1000, 1);
    slow.heard(second, 10 + second / 300, 1000, 300);
    cr_assert_leq(*repeats.left(second, 1), 990);
    if (second >= 60) cr_assert_eq(*repeats.left(second, 1), 990, "at %d s", second);
    if (second >= 60) cr_assert_eq(*silent.left(second, 1), 930, "at %d s", second);
  }
  cr_assert_float_eq(*slow.left(590, 300), 989 - 90.0 / 300, 1e-9, "a long step is not a hang");
}

// A program that makes a step an hour, and says that ten are left, does not end in ten seconds.
Test(steps_left, a_program_that_stands_near_its_end_is_not_believed) {
  StepsLeft slow, pauses, good;
  for (int second = 0; second <= 7200; second += 20) {
    slow.heard(second, 990 + second / 3600, 1000, 1);
    pauses.heard(second, 1 + second * 2 / 3, 100'000,
                 1);  // a third of its time goes to validations
    good.heard(second, 1 + second, 100'000, 1);
  }
  cr_assert_not(slow.left(7200, 1));
  cr_assert(pauses.left(7200, 1) && good.left(7200, 1));
}

// It trains on more GPUs at the end: the steps before that were not promised to be as fast.
Test(steps_left, a_program_that_becomes_faster_is_believed) {
  StepsLeft grown, lies;
  int made = 0, said = 0;
  for (int second = 0; second <= 3000; second += 20) {
    const double step_s = second <= 2400 ? 10 : 1;
    grown.heard(second, made += static_cast<int>(20 / step_s), 100'000, step_s);
    lies.heard(second, said += 2, 100'000, step_s);
    cr_assert(grown.left(second, step_s), "at %d s", second);
  }
  for (int second = 3020; second <= 4200; second += 20) lies.heard(second, said += 2, 100'000, 1);
  cr_assert_not(lies.left(4200, 1), "it says that it is faster, and is not");
}

Test(steps_left, steps_that_are_taken_back_now_and_then_hide_no_slow_pace) {
  StepsLeft steps;
  for (int second = 0; second <= 7200; second += 20)
    steps.heard(second, 990 + second / 3600 - (second / 20 % 2), 1000, 1);
  cr_assert_not(steps.left(7200, 1));
}

// Windows begin every 600 s.
Test(steps_left, a_count_that_is_low_where_a_window_begins_hides_no_slow_pace) {
  StepsLeft steps;
  for (int second = 0; second <= 7200; second += 20)
    steps.heard(second, second % 600 == 0 ? 1 : 9000 + second / 3600, 10'000, 1);
  steps.heard(7220, 9002, 10'000, 1);
  cr_assert_not(steps.left(7220, 1));
}

Test(steps_left, a_program_that_says_nothing_while_it_restarts_is_believed) {
  StepsLeft steps;
  for (int second = 0; second <= 3000; second += 20)
    steps.heard(second, second % 600 < 40 ? 0 : second, 100'000, 1);
  for (int second = 3020; second <= 3080; second += 20) steps.heard(second, second, 100'000, 1);
  cr_assert(steps.left(3080, 1));
}

Test(steps_left, a_program_that_says_its_steps_by_the_hundred_is_believed) {
  StepsLeft steps;
  for (int second = 0; second <= 3000; ++second)
    steps.heard(second, 1 + second / 100 * 100, 100'000, 1);
  cr_assert(steps.left(3000, 1));
}

Test(steps_left, a_training_that_goes_on_from_a_checkpoint_is_believed_again) {
  for (const int lost : {100, 5000}) {
    StepsLeft steps;
    for (int second = 0; second < 6000; second += 20) steps.heard(second, 1 + second, 100'000, 1);
    for (int second = 6000; second <= 7200; second += 20) {
      steps.heard(second, 1 + second - lost, 100'000, 1);
      if (lost == 100) cr_assert(steps.left(second, 1), "it lost little: %d s", second);
    }
    cr_assert(steps.left(7200, 1), "lost %d steps", lost);
  }
}

Test(steps_left, one_that_goes_on_after_its_end_is_not_believed) {
  StepsLeft beyond, stays;
  beyond.heard(0, 1001, 1000, 1);
  cr_assert_not(beyond.left(0, 1));
  for (int second = 0; second <= 100; second += 20) stays.heard(second, 1000, 1000, 1);
  cr_assert_not(stays.left(100, 1));
  StepsLeft ends;
  ends.heard(0, 1000, 1000, 1);
  cr_assert_eq(*ends.left(10, 1), 0);
}

Test(steps_left, an_end_that_moves_again_and_again_is_not_believed) {
  for (const int way : {1, -1}) {
    StepsLeft steps;
    for (int moves = 0; moves < StepsLeft::kMostMoves; ++moves) {
      steps.heard(100, 100, 1000 + way * moves, 1);
      cr_assert(steps.left(100, 1));
    }
    steps.heard(100, 100, 0, 1);
    steps.heard(100, 100, 2000, 1);
    cr_assert_not(steps.left(100, 1));
  }
}

namespace {

/// A job with a profile whose program has made `made` of 9000 steps.
void at_step(test::Live& world, int made) {
  control::Status status;
  status.state = control::JobState::active;
  status.workers = 8;
  status.steps = made;
  status.total_steps = 9000;
  world.server.says(1, status);
  world.report({.gpus = test::kEight});
}

}  // namespace

Test(steps_left, a_job_about_to_end_is_lent_nothing) {
  test::Live ends, goes_on;
  at_step(ends, 8999);
  at_step(goes_on, 1000);
  cr_assert(goes_on.grown());
  for (int round = 0; round < 50; ++round) ends.step(0.1);
  cr_assert_null(ends.server.last<control::Grow>());
}

Test(steps_left, the_owner_is_told_when_it_ends) {
  test::Live world;
  at_step(world, 1000);
  const control::Answer answer = world.ask("why");
  cr_assert_neq(answer.text.find("1000 of 9000 steps are made; at this pace it ends in"),
                std::string::npos, "%s", answer.text.c_str());
  cr_assert_eq(answer.details.number_at("total_steps", 0, 1e9).value(), 9000);
  cr_assert_gt(answer.details.number_at("time_left_s", 0, 1e9).value(), 0);
}
