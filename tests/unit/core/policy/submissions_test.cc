// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/submissions.h"

#include <cmath>
#include <criterion/criterion.h>

using namespace swell::policy;

Test(submissions, counts_large_jobs_of_the_window_by_task) {
  const std::vector<Submission> all = {{-1, 64},  {0, 64},      {100, 32},
                                       {200, 31}, {300, 32, 5}, {900, 99}};
  ArrivalFilter filter;
  filter.window_s = 600;
  cr_assert_eq(counted(all, filter, 600), 6,
               "neither those at 0 and before, nor the small or later one");
  filter.gpus = 31;
  cr_assert_eq(counted(all, filter, 600), 7);
  cr_assert_eq(counted({}, filter, 600), 0);
}

Test(submissions, a_count_beyond_int_is_the_greatest_int) {
  const std::vector<Submission> all(3, Submission{1, 64, 1'500'000'000});
  cr_assert_eq(counted(all, {}, 2), 2147483647);
}

Test(submissions, the_chance_is_that_of_equation_15) {
  const ArrivalFilter filter{3600, 32, 0.6};
  // Two arrivals an hour, twice as fast, 5 minutes: exp(-2 * 2 * 300 / 3600).
  cr_assert_float_eq(chance_to_pay(2, filter, 2, 300), std::exp(-1.0 / 3), 1e-12);
  cr_assert_eq(chance_to_pay(0, filter, 1.01, 1e6), 1, "nobody comes");
  cr_assert_eq(chance_to_pay(5, filter, 1.5, 0), 1,
               "a change of plan that costs nothing pays at once");
}

Test(submissions, no_speedup_never_pays) {
  for (const double speedup : {1.0, 0.5, 0.0, std::nan("")})
    cr_assert_eq(chance_to_pay(0, {}, speedup, 1), 0);
}
