// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/trust.h"

#include <algorithm>
#include <criterion/criterion.h>
#include <optional>
#include <utility>
#include <vector>

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

Test(trust, a_better_report_in_time_fixes_it) {
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

Test(trust, a_good_report_after_the_time_clears_what_was_wrong) {
  Trust trust;
  trust.heard(Speedup{2, 0.9}, 100);
  trust.reclaimed(120);
  cr_assert(trust.is_barred(719));
  trust.heard(Speedup{2, 2}, 130);
  cr_assert_not(trust.why().empty(), "of GPUs on their way back");
  cr_assert_not(trust.may_grow(719));
  cr_assert_not(trust.is_barred(720));
  cr_assert_not(trust.why().empty(), "nothing better was heard");
  trust.heard(std::nullopt, 750);
  cr_assert_not(trust.why().empty(), "nor by a report without lent GPUs");
  trust.heard(Speedup{2, 2}, 800);
  cr_assert(trust.may_grow(800));
  cr_assert_eq(trust.why(), std::string());
  cr_assert_not(trust.is_over(10000));
}

Test(trust, only_a_promise_kept_for_as_long_as_the_last_bar_makes_the_next_one_short_again) {
  struct Case {
    const char* what;
    std::vector<std::pair<double, std::optional<Speedup>>>
        reports;  ///< after 720, when it may grow
    double bar_s;
  };
  const Speedup good{2, 2}, none{1.01, 1.01};
  const Case cases[] = {
      {"nothing between", {}, 1200},
      {"a good report just before the bad one", {{2990, good}}, 1200},
      {"a kept promise for a little less than the bar", {{2401, good}}, 1200},
      {"a kept promise for as long as the bar", {{2400, good}}, 600},
      {"several good reports", {{800, good}, {1500, good}, {2900, good}}, 600},
      {"a long time without lent GPUs", {{800, good}, {2000, std::nullopt}}, 1200},
      {"a long time without lent GPUs, then good again",
       {{800, good}, {2000, std::nullopt}, {2900, good}},
       1200},
      {"a long time without a promise", {{800, none}}, 1200},
      {"bad ones do not count",
       {{800, good}, {900, Speedup{2, 0.9}}, {910, good}, {950, good}},
       600},
  };
  for (const Case& each : cases) {
    Trust trust;
    trust.heard(Speedup{2, 0.9}, 100);
    trust.reclaimed(120);
    for (const auto& [at, speedup] : each.reports) trust.heard(speedup, at);
    trust.heard(Speedup{2, 0.9}, 3000);
    cr_assert(trust.is_over(3020), "%s", each.what);
    trust.reclaimed(3020);
    cr_assert(trust.is_barred(3020 + each.bar_s - 1), "%s", each.what);
    cr_assert(trust.may_grow(3020 + each.bar_s), "%s", each.what);
  }
}

Test(trust, a_job_that_falls_short_again_and_again_is_barred_for_longer_each_time) {
  Trust trust;
  double now = 0, bar_s = 600;
  for (int times = 0; times < 8; ++times, bar_s = std::min(2 * bar_s, 64 * 600.0)) {
    trust.heard(Speedup{2, 1.9}, now);  // one that would reset it, if it were so easy
    trust.heard(Speedup{2, 0.9}, now + 10);
    cr_assert(trust.is_over(now += 30));
    trust.reclaimed(now);
    cr_assert(trust.is_barred(now + bar_s - 1), "%d", times);
    cr_assert(trust.may_grow(now + bar_s), "%d", times);
    now += bar_s;
  }
}

Test(trust, a_small_promise_is_none) {
  Trust trust;
  trust.heard(Speedup{1.03, 0.9}, 100);
  cr_assert(trust.may_grow(100));
}
