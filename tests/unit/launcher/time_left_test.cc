// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/time_left.h"

#include <criterion/criterion.h>

using namespace swell::launcher;

Test(time_left, slurm_s_times_are_read_in_seconds) {
  const std::pair<const char*, double> cases[] = {
      {"5 0:07\n", 7}, {"5 2:03\n", 123}, {"5 1:02:03\n", 3723}, {"5 4-01:02:03\n", 349323}};
  for (const auto& [text, seconds] : cases) {
    const auto left = read_time_left(text, 5);
    cr_assert(left && left->seconds, "%s", text);
    cr_assert_float_eq(*left->seconds, seconds, 1e-9);
  }
}

Test(time_left, a_job_without_a_limit_is_told_from_one_that_slurm_says_nothing_of) {
  cr_assert(read_time_left("5 UNLIMITED\n", 5));
  cr_assert_not(read_time_left("5 UNLIMITED\n", 5)->seconds.has_value());
  for (const char* text : {"", "5 INVALID\n", "5 NOT_SET\n", "5 1:2:3:4\n", "6 1:00\n"})
    cr_assert_not(read_time_left(text, 5).has_value(), "%s", text);
}

Test(time_left, the_task_of_an_array_is_found_by_its_own_number) {
  cr_assert_float_eq(*read_time_left("7 1:00\n5 2:00\n", 5)->seconds, 120, 1e-9);
}
