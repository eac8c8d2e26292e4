// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/launch_again.h"

#include <criterion/criterion.h>

using swell::launcher::launch_again_in;

Test(launch_again, a_launch_whose_slurmd_went_away_is_tried_again_later_each_time) {
  // As srun of 22.05 ends: 128 and the lower 7 bits of Slurm's error.
  for (const int code : {128 + 104, 141, 233, 239})
    cr_assert_eq(launch_again_in({code, 0}, 1).value_or(-1), 2, "%d", code);
  cr_assert_eq(launch_again_in({141, 0}, 2).value_or(-1), 4);
  cr_assert_eq(launch_again_in({141, 0}, 3).value_or(-1), 8);
  cr_assert_not(launch_again_in({141, 0}, 4).has_value());
}

Test(launch_again, what_another_launch_would_not_mend_is_not_tried_again) {
  for (const int code : {0, 1, 2, 127, 137, 255})
    cr_assert_not(launch_again_in({code, 0}, 1).has_value(), "%d", code);
  cr_assert_not(launch_again_in({0, 9}, 1).has_value(), "srun itself was killed");
}
