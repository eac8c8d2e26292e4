// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/live_pace.h"

#include "unit/launcher/live_run.h"

using namespace live_run;

Test(live_pace, nothing_is_expected_before_anything_was_measured) {
  cr_assert_not(LivePace().expected_s());
}

Test(live_pace, the_first_start_counts_until_a_switch_was_measured) {
  LivePace pace;
  pace.began(40, false);
  cr_assert_float_eq(*pace.expected_s(), 40, 1e-9);
  pace.started(12, false);
  pace.moved(0.5);
  cr_assert_float_eq(*pace.expected_s(), 12.5, 1e-9);
}

Test(live_pace, the_slowest_of_the_last_three_counts) {
  LivePace pace;
  pace.began(1, false);
  for (const double seconds : {90., 4., 8., 6.}) pace.started(seconds, false);
  cr_assert_float_eq(*pace.expected_s(), 8, 1e-9);
}

Test(live_pace, a_switch_to_running_workers_counts_by_itself) {
  LivePace pace;
  pace.started(20, false);
  pace.started(0.5, true);
  pace.moved(0.25);
  cr_assert_float_eq(*pace.expected_s(), 0.75, 1e-9);
}

Test(live_pace, a_slow_switch_is_forgotten_after_some_leaves) {
  LivePace pace;
  pace.began(3);
  pace.started(90, true);
  pace.moved(1);
  for (int i = 0; i < 2; ++i) pace.left(2);
  cr_assert_float_eq(*pace.longer_than_leaving_s(true), 89, 1e-9);
  pace.left(2);
  cr_assert_not(pace.longer_than_leaving_s(true), "the next reclaim tries a switch again");
  cr_assert_not(pace.expected_s());
}

Test(live_pace, starts_of_a_growth_do_not_count_where_programs_keep_their_processes) {
  LivePace pace;
  pace.began(3);
  pace.started(59, false);
  pace.moved(0.5);
  cr_assert_not(pace.expected_s(), "nothing starts when GPUs go back");
  pace.started(0.5, true);
  cr_assert_float_eq(*pace.expected_s(), 1, 1e-9);
}

Test(live_pace, a_switch_is_compared_with_leaving_once_both_are_measured) {
  LivePace pace;
  pace.left(2);
  pace.started(20, false);
  cr_assert_not(pace.longer_than_leaving_s(true), "workers may keep their processes");
  pace.started(9, true);
  cr_assert_float_eq(*pace.longer_than_leaving_s(true), 7, 1e-9);
  pace.left(3);
  cr_assert_float_eq(*pace.longer_than_leaving_s(true), 6, 1e-9);
}

Test(live_pace, programs_that_keep_no_process_are_compared_before_anything_was_measured) {
  LivePace pace;
  pace.began(20, false);
  cr_assert_float_eq(*pace.longer_than_leaving_s(true), 20 - LivePace::kLeave_s, 1e-9);
  cr_assert_not(pace.longer_than_leaving_s(false), "nobody knows how it leaves");
  pace.left(18);
  cr_assert_float_eq(*pace.longer_than_leaving_s(false), 2, 1e-9, "as measured");
  LivePace staying;
  staying.began(20, true);
  cr_assert_not(staying.longer_than_leaving_s(true), "it need not start");
}

Test(live_pace, a_start_lasts_until_the_first_step_where_steps_are_known) {
  LivePace pace;
  pace.stepped(90);
  cr_assert_eq(pace.start_s(), 0, "it began before");
  pace.starts(100);
  pace.ready(104);
  pace.ready(105);
  cr_assert_float_eq(pace.start_s(), 4, 1e-9);
  pace.stepped(107);
  pace.stepped(108);
  cr_assert_float_eq(pace.start_s(), 7, 1e-9);
  pace.starts(200);
  pace.ready(203);
  pace.switches();
  pace.stepped(300);
  cr_assert_float_eq(pace.start_s(), 3, 1e-9, "a step after a live switch");
}

Test(live_pace, the_agent_says_how_long_the_start_took) {
  Run run(false);
  cr_assert_eq(run.machine.status().start_s, 0);
  const double since = run.now;
  run.now += 6;
  run.handle(event::MadeSteps{0, 1});
  cr_assert_float_eq(run.machine.status().start_s, run.now - since, 1e-9);
}

namespace {

/// Grown by a switch whose programs took `start_s` to start.
struct GrownIn : Run {
  explicit GrownIn(double start_s, bool stays = false) : Run(true, true, 0, 0, 0, stays) {
    lend();
    now += start_s;
    committed(1);
    handle(event::Exited{{0, 0}, {}, 0});
  }
};

}  // namespace

Test(live_pace, gpus_go_back_by_a_switch_where_its_programs_start_in_time) {
  GrownIn run(17);
  run.shrink(32);  // a switch has 60 % of the 30 s that the margin leaves
  cr_assert_eq(run.orders.size(), 2u);
  cr_assert_not(run.has_asked_to_leave());
}

Test(live_pace, workers_leave_at_once_where_the_programs_of_a_switch_would_start_too_late) {
  GrownIn run(19);
  run.shrink(32);
  cr_assert_eq(run.orders.size(), 1u);
  cr_assert(run.has_asked_to_leave());
  cr_assert(run.said.find("a switch takes about 19.0 s and has 18.0 s") != std::string::npos);
}

Test(live_pace, a_growth_that_started_slowly_does_not_make_programs_leave_that_stay) {
  GrownIn run(59, true);
  run.shrink(32);
  cr_assert_eq(run.orders.size(), 2u);
  cr_assert_not(run.has_asked_to_leave());
}

Test(live_pace, the_first_start_of_the_program_decides_where_no_switch_was_made) {
  Run run(false, false);
  run.offered();
  run.allocated(kCompanion);
  run.basic_up();
  run.handle(event::Hello{{1, 0}, "host", 2});
  run.now += 25;
  run.handle(event::Begun{0, "", 0, false});
  cr_assert_eq(run.machine.status().workers, 2);
  run.shrink(32);
  cr_assert_eq(run.orders.size(), 0u);
  cr_assert(run.has_asked_to_leave());
}

namespace {

/// One of two workers whose programs took 9 s to start, and listen for the restart signal or not.
struct BeganIn9s : Run {
  BeganIn9s(bool stays, bool listens) : Run(false, false) {
    offered();
    allocated(kCompanion);
    basic_up();
    handle(event::Hello{{1, 0}, "host", 2});
    now += 9;
    if (listens)
      for (const int node : {0, 1}) handle(event::Listens{{node, 0}, 0});
    handle(event::Begun{0, "", 0, stays});
    cr_assert_eq(machine.status().workers, 2);
    shrink(32);
  }
};

}  // namespace

Test(live_pace, programs_that_keep_no_process_leave_at_once_in_the_first_reclaim) {
  const BeganIn9s run(false, true);
  cr_assert_eq(run.orders.size(), 0u);
  cr_assert(run.said.find("a switch takes about 6.0 s longer than leaving") != std::string::npos,
            "%s", run.said.c_str());
}

Test(live_pace, a_first_switch_is_tried_where_processes_may_stay_or_leaving_is_not_known) {
  cr_assert_eq(BeganIn9s(true, true).orders.size(), 1u);
  cr_assert_eq(BeganIn9s(false, false).orders.size(), 1u);
}

Test(live_pace, after_a_switch_that_started_too_late_the_next_one_is_not_tried) {
  GrownIn run(1);
  run.lend(2, kCompanion + 1);
  run.tick(run.now + 600);  // what a growth may take
  cr_assert_eq(run.calls_off, 1);
  run.aborted(2);
  for (const int node : {0, 1, 2}) run.handle(event::Exited{{node, 0}, {0, SIGKILL}, 2});
  cr_assert_not(run.has_asked_to_leave());
  run.shrink(32);
  cr_assert_eq(run.orders.size(), 2u);
  cr_assert(run.has_asked_to_leave(), "%s", run.said.c_str());
}

namespace {

/// One whose GPUs went back by a restart once: a switch was not prepared in its 18 s, then the
/// workers ended after `leave_s`. By now it has grown again.
struct GaveBackByLeaving : GrownIn {
  GaveBackByLeaving(double leave_s, int exit_signal) : GrownIn(1) {
    shrink(32);
    tick(now + 18);
    aborted(2);
    cr_assert(has_asked_to_leave());
    handle(event::Exited{{0, 0}, {0, SIGKILL}, 2});
    now += leave_s;
    for (const int node : {0, 1}) handle(event::Exited{{node, 0}, {0, exit_signal}, 1});
    basic_up();
    handle(event::Begun{begin.generation, ""});
    lend(2, kCompanion + 1);
    now += 1;
    committed(orders.back().generation);
    handle(event::Exited{{0, 0}, {}, begin.generation});
    cr_assert_eq(machine.status().workers, 2, "%s", said.c_str());
    signals.clear();
    stops.clear();
    said.clear();
  }
};

/// With so much time a switch of 18 s would fit.
void give_back(Run& run) { run.handle(control::Shrink{{kCompanion + 1}, 62, "needed"}); }

}  // namespace

Test(live_pace, workers_leave_at_once_where_they_leave_sooner_than_a_switch_ends) {
  GaveBackByLeaving run(2, 0);
  const std::size_t orders = run.orders.size();
  give_back(run);
  cr_assert_eq(run.orders.size(), orders);
  cr_assert(run.has_asked_to_leave());
  cr_assert(run.said.find("a switch takes about 16.0 s longer than leaving") != std::string::npos,
            "%s", run.said.c_str());
}

Test(live_pace, a_switch_is_tried_where_leaving_takes_as_long) {
  GaveBackByLeaving run(17, 0);
  const std::size_t orders = run.orders.size();
  give_back(run);
  cr_assert_eq(run.orders.size(), orders + 1);
  cr_assert_not(run.has_asked_to_leave());
}

Test(live_pace, killed_workers_do_not_count_as_having_left) {
  GaveBackByLeaving run(2, SIGKILL);
  const std::size_t orders = run.orders.size();
  give_back(run);
  cr_assert_eq(run.orders.size(), orders + 1);
  cr_assert_not(run.has_asked_to_leave());
}
