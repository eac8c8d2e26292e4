// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/pacing.h"

#include <chrono>
#include <criterion/criterion.h>

using std::chrono::duration;
using std::chrono::milliseconds;
using swell::controller::rest_after;

Test(pacing, rounds_are_apart_and_take_a_hundredth_of_a_core_whoever_asks_for_them) {
  cr_assert(rest_after(0, 2) == milliseconds(100));
  cr_assert_float_eq(duration<double>(rest_after(0.01, 2)).count(), 1, 1e-6);
  cr_assert(rest_after(1, 2) == milliseconds(2000), "PollInterval at the most");
}
