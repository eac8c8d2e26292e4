// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/departure.h"

#include <criterion/criterion.h>

using swell::controller::Departure;

Test(departure, a_leaving_companion_keeps_its_reason_and_leaves_no_later) {
  Departure departure;
  cr_assert_not(departure.has_begun());
  departure.begin(50, "needed by job 30");
  departure.begin(60, "another");
  cr_assert_eq(departure.deadline(), 50);
  departure.begin(40, "another");
  cr_assert_eq(departure.deadline(), 40);
  cr_assert_eq(departure.reason(), "needed by job 30");
}

Test(departure, slurm_s_preemption_decides_when_one_ends) {
  Departure taken;
  taken.begin(50, "needed by job 30");
  taken.preempt(70, 31);
  cr_assert_eq(taken.deadline(), 70);
  cr_assert(taken.is_by_slurm());
  cr_assert_eq(taken.reason(), "needed by job 30");
  cr_assert(taken.was_under_way());
  Departure other;
  other.preempt(70, 31);
  cr_assert_eq(other.reason(), "needed by job 31");
  cr_assert_not(other.was_under_way());
  Departure unknown;
  unknown.preempt(70, 0);
  cr_assert_eq(unknown.reason(), "preempted by Slurm");
}
