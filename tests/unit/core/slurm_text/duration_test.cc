// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/slurm_text/duration.h"

#include <criterion/criterion.h>

using swell::slurm_text::seconds_of;

Test(duration, times_are_read_as_slurm_prints_them) {
  cr_assert_eq(seconds_of("05:30"), 330);
  cr_assert_eq(seconds_of("01:00:00"), 3600);
  cr_assert_eq(seconds_of("1-02:00:00"), 86400 + 7200);
  cr_assert_eq(seconds_of("30"), 30);
}

Test(duration, other_text_is_no_time) {
  for (const char* text : {"", "UNLIMITED", "x-01:00", "01:", "-1:00", "1:x"})
    cr_assert_eq(seconds_of(text), 0, "%s", text);
  cr_assert_gt(seconds_of("9223372036854775807-9223372036854775807:59"), 0, "bounded");
}
