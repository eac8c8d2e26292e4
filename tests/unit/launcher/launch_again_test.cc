// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/launch_again.h"

#include <criterion/criterion.h>

using swell::launcher::knows_nodes_in;
using swell::launcher::launch_again_in;
using swell::launcher::slurmctld_was_away;
using swell::launcher::slurmd_was_lost;
using swell::launcher::srun_failed;

Test(launch_again, a_slurmd_that_went_away_is_told_by_the_code_of_srun) {
  // As srun of 22.05 ends: 128 and the lower 7 bits of Slurm's error.
  for (const int code : {128 + 104, 141, 233, 239})
    cr_assert(slurmd_was_lost({code, 0}), "%d", code);
  for (const int code : {0, 1, 2, 127, 137, 255})
    cr_assert_not(slurmd_was_lost({code, 0}), "%d", code);
  cr_assert_not(slurmd_was_lost({0, 9}), "srun itself was killed");
}

Test(launch_again, sruns_own_errors_have_one_code_which_the_user_may_set) {
  cr_assert(srun_failed({1, 0}, nullptr));
  cr_assert(srun_failed({1, 0}, "none"));
  cr_assert(srun_failed({44, 0}, "44"));
  cr_assert_not(srun_failed({1, 0}, "44"));
  for (const int code : {0, 2, 127, 137, 255})
    cr_assert_not(srun_failed({code, 0}, nullptr), "%d", code);
  cr_assert_not(srun_failed({1, 9}, nullptr), "srun itself was killed");
}

Test(launch_again, refusals_of_a_just_started_slurmctld_are_put_down_to_its_start) {
  const std::time_t began = 1'000'000;
  cr_assert(slurmctld_was_away(began + 30, began), "it was started since");
  cr_assert(slurmctld_was_away(began - 10, began), "its nodes may not have registered yet");
  cr_assert_not(slurmctld_was_away(began - 20, began));
  cr_assert_not(slurmctld_was_away(std::nullopt, began), "it does not say");
}

Test(launch_again, no_step_is_asked_for_before_slurmctld_knows_its_nodes) {
  const std::time_t since = 1'000'000;
  cr_assert_eq(knows_nodes_in(since, since + 1), 6);
  cr_assert_eq(knows_nodes_in(since, since + 60), 0);
  cr_assert_eq(knows_nodes_in(since, since - 60), 7, "clocks differ");
  cr_assert_eq(knows_nodes_in(std::nullopt, since), 0, "it does not say");
}

Test(launch_again, each_launch_waits_longer_and_the_fourth_is_the_last) {
  cr_assert_eq(launch_again_in(1).value_or(-1), 2);
  cr_assert_eq(launch_again_in(2).value_or(-1), 4);
  cr_assert_eq(launch_again_in(3).value_or(-1), 8);
  cr_assert_not(launch_again_in(4).has_value());
}
