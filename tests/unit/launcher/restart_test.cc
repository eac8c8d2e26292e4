// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/restart.h"

#include <criterion/criterion.h>
#include <csignal>

using namespace swell::launcher;

static Restart growth() {
  Running before;
  before.since = 50;
  return Restart({3, 4, Purpose::grow, 100, 130}, before);
}

Test(restart, workers_that_leave_as_asked_keep_the_way_back_open) {
  Restart restart = growth();
  restart.left({0, 0}, {true, false});
  cr_assert(restart.may_return());
  cr_assert_not(restart.is_forced());
  cr_assert_eq(restart.take_before().since, 50);
}

Test(restart, an_error_or_a_death_by_the_signal_closes_the_way_back) {
  for (const Restart::Answer answer :
       {Restart::Answer{false, false}, Restart::Answer{true, true}}) {
    Restart restart = growth();
    restart.left({1, 0}, answer);
    cr_assert_not(restart.may_return());
    cr_assert(restart.is_forced());
  }
}

Test(restart, a_killed_worker_tells_nothing_of_the_time_that_leaving_takes) {
  Restart restart = growth();
  restart.left({0, SIGKILL}, {true, false});
  cr_assert(restart.is_forced());
  cr_assert(restart.may_return(), "the others may not have heard the request");
}

Test(restart, a_deadline_that_is_shortened_never_grows) {
  Restart restart = growth();
  restart.shorten(140);
  cr_assert_eq(restart.deadline(), 130);
  restart.shorten(110);
  cr_assert_eq(restart.deadline(), 110);
  restart.extend(170);
  cr_assert_eq(restart.deadline(), 170);
}

Test(restart, the_user_hears_of_the_first_bad_exit_only) {
  Restart restart = growth();
  cr_assert(restart.tells_of_bad_exit());
  cr_assert_not(restart.tells_of_bad_exit());
}
