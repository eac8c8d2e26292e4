// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/companion_set.h"

#include <criterion/criterion.h>

using namespace swell::controller;

namespace {

CompanionSet two() {
  CompanionSet set;
  for (const JobId id : {20u, 21u}) {
    Companion companion;
    companion.id = id;
    companion.grant = "nonce" + std::to_string(id);
    companion.gpus = {4, "h100", "0-3"};
    set.add(companion);
  }
  return set;
}

}  // namespace

Test(companion_set, is_found_by_id_and_by_grant) {
  CompanionSet set = two();
  cr_assert_eq(set.find(21)->grant, "nonce21");
  cr_assert_null(set.find(22));
  cr_assert(set.has_grant("nonce20"));
  cr_assert_eq(set.lent_gpus(), 8);
  set.remove(20);
  cr_assert_not(set.has_grant("nonce20"));
  cr_assert_eq(set.lent_gpus(), 4);
}

Test(companion_set, a_leaving_companion_keeps_its_reason_and_leaves_no_later) {
  CompanionSet set = two();
  set.find(20)->leave(50, "needed by job 30");
  set.find(20)->leave(60, "another");
  cr_assert_eq(set.find(20)->deadline, 50);
  set.find(20)->leave(40, "another");
  cr_assert_eq(set.find(20)->deadline, 40);
  cr_assert_eq(set.find(20)->reason, "needed by job 30");
  set.leave(30, "the program has ended");
  cr_assert_eq(set.find(20)->deadline, 40);
  cr_assert_eq(set.find(21)->reason, "the program has ended");
}

Test(companion_set, slurm_s_preemption_decides_when_one_ends) {
  CompanionSet set = two();
  set.find(20)->leave(50, "needed by job 30");
  set.find(20)->preempted(70, 31);
  cr_assert_eq(set.find(20)->deadline, 70);
  cr_assert(set.find(20)->by_slurm);
  cr_assert_eq(set.find(20)->reason, "needed by job 30");
  cr_assert(set.find(20)->was_leaving);
  set.find(21)->preempted(70, 31);
  cr_assert_eq(set.find(21)->reason, "needed by job 31");
  cr_assert_not(set.find(21)->was_leaving);
  CompanionSet others = two();
  others.find(20)->preempted(70, 0);
  cr_assert_eq(others.find(20)->reason, "preempted by Slurm");
}
