// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/live_pace.h"

#include "unit/launcher/live_run.h"

using namespace live_run;

Test(live_pace, nothing_is_expected_before_anything_was_measured) {
  cr_assert_not(LivePace().expected_s());
}

Test(live_pace, the_first_start_counts_until_a_switch_was_measured) {
  LivePace pace;
  pace.began(40);
  cr_assert_float_eq(*pace.expected_s(), 40, 1e-9);
  pace.started(12);
  pace.moved(0.5);
  cr_assert_float_eq(*pace.expected_s(), 12.5, 1e-9);
}

Test(live_pace, the_slowest_of_the_last_three_counts) {
  LivePace pace;
  for (const double seconds : {90., 4., 8., 6.}) pace.started(seconds);
  cr_assert_float_eq(*pace.expected_s(), 8, 1e-9);
}

namespace {

/// Grown by a switch whose programs took `start_s` to start.
Run grown_in(double start_s) {
  Run run;
  run.lend();
  run.now += start_s;
  run.committed(1);
  run.event([&] { run.machine.exited(run.now, {0, 0}, {}, 0); });
  return run;
}

}  // namespace

Test(live_pace, gpus_go_back_by_a_switch_where_its_programs_start_in_time) {
  Run run = grown_in(17);
  run.shrink(32);  // a switch has 60 % of the 30 s that the margin leaves
  cr_assert_eq(run.orders.size(), 2u);
  cr_assert_not(run.has_asked_to_leave());
}

Test(live_pace, workers_leave_at_once_where_the_programs_of_a_switch_would_start_too_late) {
  Run run = grown_in(19);
  run.shrink(32);
  cr_assert_eq(run.orders.size(), 1u);
  cr_assert(run.has_asked_to_leave());
  cr_assert(run.said.find("a switch takes about 19.0 s and has 18.0 s") != std::string::npos);
}

Test(live_pace, the_first_start_of_the_program_decides_where_no_switch_was_made) {
  Run run(false, false);
  run.offered();
  run.allocated(kCompanion);
  run.basic_up();
  run.event([&] { run.machine.hello(run.now, {1, 0}, "host", 2); });
  run.now += 25;
  run.event([&] { run.machine.begun(run.now, 0, ""); });
  cr_assert_eq(run.machine.status().workers, 2);
  run.shrink(32);
  cr_assert_eq(run.orders.size(), 0u);
  cr_assert(run.has_asked_to_leave());
}

Test(live_pace, after_a_switch_that_started_too_late_the_next_one_is_not_tried) {
  Run run = grown_in(1);
  run.lend(2, kCompanion + 1);
  run.tick(run.now + 600);  // what a growth may take
  cr_assert_eq(run.calls_off, 1);
  run.aborted(2);
  for (const int node : {0, 1, 2})
    run.event([&] { run.machine.exited(run.now, {node, 0}, {0, SIGKILL}, 2); });
  cr_assert_not(run.has_asked_to_leave());
  run.shrink(32);
  cr_assert_eq(run.orders.size(), 2u);
  cr_assert(run.has_asked_to_leave(), "%s", run.said.c_str());
}
