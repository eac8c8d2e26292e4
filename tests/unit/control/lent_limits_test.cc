// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/lent_limits.h"

#include <criterion/criterion.h>

using swell::control::LentLimits;

Test(lent_limits, names_have_their_own_and_all_others_the_stars) {
  const auto limits = LentLimits::parse("Physics:64,guests:0,*:16");
  cr_assert(limits.ok(), "%s", limits.error().message().c_str());
  cr_assert_eq(limits->of("physics"), std::optional(64));
  cr_assert_eq(limits->of("GUESTS"), std::optional(0));
  cr_assert_eq(limits->of("chemistry"), std::optional(16));
}

Test(lent_limits, without_a_star_other_names_have_none) {
  cr_assert_eq(LentLimits::parse("physics:64")->of("chemistry"), std::nullopt);
  cr_assert(LentLimits().empty());
}

Test(lent_limits, say_which_entry_is_wrong) {
  for (const char* text : {"", "physics", "physics:", ":3", "a:1,,b:2", "a:1,", "a:-1", "a:1x",
                           "a:1000001", "a :1", "a: 1", "a:99999999999"})
    cr_assert_not(LentLimits::parse(text).ok(), "accepted: %s", text);
  cr_assert_neq(LentLimits::parse("a:1,b:many").error().message().find("\"b:many\" is not"),
                std::string::npos);
  cr_assert_neq(LentLimits::parse("a:1,A:2").error().message().find("\"a\" has two"),
                std::string::npos);
}
