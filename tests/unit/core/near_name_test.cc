// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/near_name.h"

#include <criterion/criterion.h>

using namespace swell;

Test(near_name, letters_apart_counts_changes_additions_and_omissions) {
  cr_assert_eq(letters_apart("swell", "swell"), 0u);
  cr_assert_eq(letters_apart("swel", "swell"), 1u);
  cr_assert_eq(letters_apart("jos", "jobs"), 1u);
  cr_assert_eq(letters_apart("", "abc"), 3u);
}

Test(near_name, the_nearest_is_meant_and_nothing_far_away) {
  cr_assert_eq(near_name("jos", {"top", "jobs", "why"}).value_or("-"), std::string("jobs"));
  cr_assert_eq(near_name("toop", {"topo", "top"}).value_or("-"), std::string("top"));
  cr_assert_not(near_name("frobnicate", {"top", "jobs"}).has_value());
  cr_assert_not(near_name("xy", {"ab"}).has_value(), "no letter is the same");
  cr_assert_not(near_name("x", {}).has_value());
}
