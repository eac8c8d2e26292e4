// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/trust.h"

#include <criterion/criterion.h>

using namespace swell::policy;

Test(trust, a_job_that_gains_what_was_promised_grows_on) {
  Trust trust;
  trust.heard(Speedup{2, 1.8}, 100);
  cr_assert(trust.may_grow(100));
  cr_assert_not(trust.is_over(1000));
  trust.heard(std::nullopt, 110);
  cr_assert(trust.why().empty());
}

Test(trust, a_job_that_gains_less_than_was_promised_keeps_what_it_has) {
  Trust trust;
  trust.heard(Speedup{3, 1.5}, 100);
  cr_assert(trust.may_grow(100));
  cr_assert_not(trust.is_over(1000));
}

Test(trust, a_job_whose_gain_falls_short_by_more_than_the_set_share_gives_back_after_a_while) {
  for (const double share : {0.5, 0.8}) {
    Trust trust;
    const double enough = 1 + 2 * (1 - share) + 0.01;
    trust.heard(Speedup{3, enough}, 100, share);
    cr_assert(trust.may_grow(100));
    trust.heard(Speedup{3, enough - 0.02}, 110, share);
    cr_assert_not(trust.may_grow(110));
    cr_assert_not(trust.is_over(129));
    cr_assert(trust.is_over(130));
    cr_assert(trust.why().ends_with(share == 0.5
                                        ? "of the gain; at least 50 % is asked for (MaxShortfall)"
                                        : "of the gain; at least 20 % is asked for (MaxShortfall)"),
              "%s", trust.why().c_str());
    trust.heard(Speedup{3, enough - 0.02}, 125, share);
    cr_assert(trust.is_over(130), "another report that says the same begins nothing anew");
    trust.reclaimed(130);
    cr_assert_not(trust.may_grow(729));
    cr_assert(trust.may_grow(730));
  }
}

Test(trust, a_share_of_one_asks_for_any_gain_that_is_one) {
  Trust trust;
  trust.heard(Speedup{3, 1.06}, 100, 1);
  cr_assert(trust.may_grow(100));
  trust.heard(Speedup{3, 1.04}, 100, 1);
  cr_assert_not(trust.may_grow(100));
}

Test(trust, a_job_that_gains_nothing_grows_no_more_and_gives_back_after_a_while) {
  Trust trust;
  trust.heard(Speedup{2, 1.02}, 100);
  cr_assert_eq(trust.why(),
               std::string("lent GPUs made it 1.02 times as fast where 2.00 was predicted, a gain "
                           "below 5 %"));
  cr_assert_not(trust.may_grow(100));
  cr_assert_not(trust.is_over(119));
  cr_assert(trust.is_over(120));
}

Test(trust, a_better_report_in_time_mends_it) {
  Trust trust;
  trust.heard(Speedup{2, 0.9}, 100);
  trust.heard(Speedup{2, 1.2}, 110);
  cr_assert(trust.may_grow(110));
  cr_assert_not(trust.is_over(1000));
}

Test(trust, after_a_reclaim_nothing_is_lent_for_a_time_that_doubles) {
  Trust trust;
  trust.heard(Speedup{2, 0.9}, 100);
  trust.reclaimed(120);
  cr_assert_not(trust.is_over(500));
  cr_assert_not(trust.may_grow(719));
  cr_assert(trust.may_grow(720));
  trust.heard(Speedup{2, 0.9}, 800);
  cr_assert_not(trust.may_grow(800));
  cr_assert(trust.is_over(820));
  trust.reclaimed(820);
  cr_assert_not(trust.may_grow(2000));
  cr_assert(trust.may_grow(2020));
}

Test(trust, a_small_promise_is_none) {
  Trust trust;
  trust.heard(Speedup{1.03, 0.9}, 100);
  cr_assert(trust.may_grow(100));
}
