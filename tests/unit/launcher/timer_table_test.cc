// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/timer_table.h"

#include <criterion/criterion.h>

using swell::launcher::TimerTable;

namespace {

struct Kettle {
  std::optional<double> boils_at, whistles_at;
  std::vector<int> fired;
};

const TimerTable<Kettle> kTimers = {
    {[](const Kettle& one) { return one.boils_at; },
     [](Kettle& one, double now) {
       one.fired.push_back(1);
       one.boils_at.reset();
       one.whistles_at = now;
     }},
    {[](const Kettle& one) { return one.whistles_at; },
     [](Kettle& one, double now) {
       one.fired.push_back(2);
       one.whistles_at = now + 10;
     }},
};

}  // namespace

Test(timer_table, the_deadline_is_that_of_the_first_timer_that_runs) {
  Kettle one;
  cr_assert_not(kTimers.deadline(one).has_value());
  one.whistles_at = 7;
  cr_assert_eq(kTimers.deadline(one), 7);
  one.boils_at = 5;
  cr_assert_eq(kTimers.deadline(one), 5);
  one.boils_at = 9;
  cr_assert_eq(kTimers.deadline(one), 7);
}

Test(timer_table, only_timers_that_are_due_fire) {
  Kettle one{5, 7, {}};
  kTimers.fire_due(one, 4.9);
  cr_assert(one.fired.empty());
  one.boils_at = 8;
  kTimers.fire_due(one, 7);
  cr_assert(one.fired == std::vector<int>({2}));
  cr_assert_eq(one.whistles_at, 17);
}

Test(timer_table, timers_fire_in_order_and_see_what_earlier_ones_have_done) {
  Kettle one{5, std::nullopt, {}};
  kTimers.fire_due(one, 5);
  cr_assert(one.fired == std::vector<int>({1, 2}));
  cr_assert_eq(kTimers.deadline(one), 15);
}
