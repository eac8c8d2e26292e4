// SPDX-License-Identifier: GPL-2.0-or-later
// The generation machine in live mode: GPUs are given back.
#include <algorithm>
#include <csignal>

#include "launcher/live_run.h"
#include "runtime/wire/messages.h"

using namespace live_run;

Test(live, a_second_reclaim_during_a_switch_is_followed_by_another_switch) {
  Run run;
  run.grown();
  run.lend(2, kCompanion + 1);
  run.committed(2);
  for (const int node : {0, 1}) run.handle(event::Exited{{node, 0}, {}, 1});
  cr_assert_eq(run.machine.status().workers, 3);
  run.handle(control::Shrink{{kCompanion}, 30, "needed"});
  cr_assert(run.orders.back().to == (Workers{{0, 0}, {2, 0}}));
  run.handle(control::Shrink{{kCompanion + 1}, 30, "needed"});
  cr_assert_eq(run.calls_off, 1);
  run.aborted(3);
  cr_assert_not(run.has_asked_to_leave(), "there is time for a switch to the one that is left");
  for (const int node : {0, 2}) run.handle(event::Exited{{node, 0}, {0, SIGKILL}, 3});
  cr_assert(run.orders.back().to == (Workers{{0, 0}}));
  run.committed(4);
  for (const int node : {0, 1, 2}) run.handle(event::Exited{{node, 0}, {}, 2});
  cr_assert_eq(run.releases, (std::vector<JobId>{kCompanion, kCompanion + 1}));
}

Test(live, shims_are_told_where_no_program_of_the_next_generation_is_new) {
  Run run;
  cr_assert_not(run.starts.back().none_is_new);
  run.grown();
  cr_assert_not(run.starts.back().none_is_new, "the lent worker's is new");
  run.replan(2);
  cr_assert(run.starts.back().none_is_new);
  run.aborted(2);
  for (const int node : {0, 1}) run.handle(event::Exited{{node, 0}, {0, SIGKILL}, 2});
  run.shrink(30);
  cr_assert(run.starts.back().none_is_new);
}

Test(live, a_reclaim_is_a_switch_to_the_others_and_then_a_release) {
  Run run;
  run.grown();
  run.shrink(30);
  cr_assert_eq(run.orders.size(), 2u);
  cr_assert(run.orders[1].to == (Workers{{0, 0}}));
  cr_assert(run.releases.empty());
  cr_assert_eq(run.machine.status().state, JobState::draining);
  run.committed(2);
  cr_assert(run.releases.empty());
  run.handle(event::Exited{{1, 0}, {}, 1});
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  run.handle(event::Exited{{0, 0}, {}, 1});
  cr_assert_eq(run.machine.status().workers, 1);
  cr_assert(run.signals.empty());
  cr_assert_not(run.code.has_value());
}

Test(live, a_growth_whose_shims_are_silent_gives_the_gpus_back_in_time) {
  Run run;
  run.lend();
  run.handle(event::Switching{1, SwitchPhase::quiesce});
  run.shrink(32);
  cr_assert_eq(run.calls_off, 1);
  cr_assert_leq(*run.machine.deadline(), run.now + 30);
  run.tick(run.now + 30);
  run.handle(event::Exited{{1, 0}, {0, SIGKILL}, 1});
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  cr_assert_eq(run.machine.status().workers, 1);
}

Test(live, workers_that_leave_with_a_switch_are_killed_by_the_deadline) {
  Run run;
  run.grown();
  run.shrink(12);  // 10 with the margin
  run.now += 2;
  run.committed(2);
  run.tick(run.now + 8);
  cr_assert(std::any_of(run.signals.begin(), run.signals.end(), [](const auto& each) {
    return each.signal == SIGKILL && each.workers == (Workers{{1, 0}});
  }));
}

Test(live, gpus_are_released_though_the_switch_failed_with_which_they_were_let_go) {
  Run run;
  run.grown();
  run.shrink(32);
  run.handle(event::Switching{2, SwitchPhase::move});
  run.handle(event::LetGo{2});
  run.aborted(2);
  run.handle(event::Exited{{1, 0}, {}, 1});
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
}

Test(live, a_growth_that_fails_leaves_the_training_and_gives_the_gpus_back) {
  Run run;
  run.lend();
  run.aborted(1);
  cr_assert_eq(run.machine.status().workers, 1);
  cr_assert_eq(run.machine.status().generation, 0);
  cr_assert(std::all_of(run.signals.begin(), run.signals.end(),
                        [](const auto& each) { return each.generation == 1; }));
  cr_assert(run.has_signalled(SIGKILL));
  run.handle(event::Exited{{0, 0}, {0, SIGKILL}, 1});
  run.handle(event::Exited{{1, 0}, {0, SIGKILL}, 1});
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  cr_assert(run.machine.status().no_growth.find("it broke") != std::string::npos);
  cr_assert_not(run.code.has_value());
}

Test(live, a_growth_that_fails_between_its_chunks_goes_on_from_a_snapshot_over_the_old_gpus) {
  for (const bool has_moved : {false, true}) {
    Run run;
    run.lend();
    for (const auto phase :
         {SwitchPhase::prepare, SwitchPhase::quiesce, SwitchPhase::secure, SwitchPhase::move})
      if (has_moved || phase != SwitchPhase::move) run.handle(event::Switching{1, phase});
    const std::size_t starts = run.starts.size();
    run.aborted(1);
    cr_assert_eq(run.said.find("between its chunks") != std::string::npos, has_moved);
    run.handle(event::Exited{{1, 0}, {0, SIGKILL}, 1});
    run.handle(event::Exited{{0, 0}, {0, SIGKILL}, 1});
    cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
    cr_assert_eq(run.starts.size(), starts, "the old generation trains, or has yet to leave");
    if (!has_moved) continue;
    // The old program was told to leave by its shim.
    run.handle(event::Exited{{0, 0}, {}, 0});
    run.handle(event::Hello{{0, 0}, "host", 3});
    cr_assert_eq(run.starts.size(), starts + 1);
    cr_assert_eq(run.begin.generation, 2);
    cr_assert(run.begin.ranks == (Workers{{0, 0}}));
    cr_assert_not(run.code.has_value());
    cr_assert_neq(run.machine.status().no_growth, std::string(), "growth waits");
  }
}

Test(live, a_shim_whose_old_program_left_during_a_switch_that_failed_starts_another) {
  Run run;
  run.lend();
  for (const auto phase :
       {SwitchPhase::prepare, SwitchPhase::quiesce, SwitchPhase::secure, SwitchPhase::move})
    run.handle(event::Switching{1, phase});
  run.handle(event::Exited{{0, 0}, {}, 0});
  run.handle(event::Hello{{0, 0}, "host", 3});
  const std::size_t starts = run.starts.size();
  run.aborted(1);
  run.handle(event::Exited{{1, 0}, {0, SIGKILL}, 1});
  cr_assert_eq(run.starts.size(), starts + 1, "it said that it was ready");
  cr_assert(run.begin.ranks == (Workers{{0, 0}}));
}

Test(live, a_reclaim_during_a_growth_calls_it_off_and_growth_does_not_wait_for_that) {
  Run run;
  run.lend();
  run.shrink(30);
  cr_assert_eq(run.calls_off, 1);
  run.aborted(1);
  cr_assert_eq(run.machine.status().no_growth, std::string());
  run.handle(event::Exited{{0, 0}, {1, 0}, 1});
  run.handle(event::Exited{{1, 0}, {1, 0}, 1});
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  cr_assert_eq(run.orders.size(), 1u);
}

Test(live, the_owner_reads_why_gpus_go_back_that_a_growth_would_have_used) {
  const std::string reason = "lent GPUs made it 1.02 times as fast where 2.00 was predicted";
  Run run;
  run.lend();
  run.handle(control::Shrink{{kCompanion}, 30, reason});
  cr_assert_eq(run.calls_off, 1);
  SwitchOutcome outcome;
  outcome.phase = SwitchPhase::prepare;
  outcome.code = swell::ErrorCode::cancelled;
  run.handle(event::Switched{1, outcome});
  cr_assert_eq(run.machine.status().switched, "called off in prepare: GPUs go back: " + reason);
  cr_assert_neq(run.said.find("still 1 worker, the switch was called off: GPUs go back: " + reason),
                std::string::npos, "%s", run.said.c_str());
}

Test(live, a_reclaim_that_is_told_twice_goes_on) {
  Run run;
  run.grown();
  run.handle(event::Notice{{1, 0}, SIGURG});
  cr_assert_eq(run.orders.size(), 2u);
  run.shrink(30);
  cr_assert_eq(run.calls_off, 0);
}

Test(live, a_reclaim_that_comes_too_late_for_the_growth_follows_it) {
  Run run;
  run.lend();
  run.shrink(30);
  run.committed(1);
  cr_assert_eq(run.orders.size(), 1u);
  run.handle(event::Exited{{0, 0}, {}, 0});
  cr_assert_eq(run.orders.size(), 2u);
  cr_assert(run.orders[1].from == (Workers{{0, 0}, {1, 0}}));
}

Test(live, a_reclaim_that_fails_falls_back_to_leaving_with_one_line) {
  Run run;
  run.grown();
  run.shrink(30);
  run.aborted(2);
  cr_assert(run.has_asked_to_leave());
  cr_assert_eq(run.machine.status().state, JobState::draining);
  cr_assert(run.said.find("the workers are asked to leave") != std::string::npos);
}

Test(live, a_reclaim_s_switch_has_part_of_the_time) {
  Run run;
  run.grown();
  run.shrink(32);  // 30 with the margin
  cr_assert_float_eq(run.machine.deadline().value(), run.now + 18, 1e-9);
  run.tick(run.now + 18);
  cr_assert_eq(run.calls_off, 1);
  // No answer at all: the workers leave by the deadline all the same.
  run.tick(run.now + 12);
  cr_assert(run.has_asked_to_leave());
}

Test(live, a_switch_that_is_being_committed_when_the_time_is_over_holds) {
  Run run;
  run.grown();
  run.shrink(32);
  run.handle(event::Switching{2, SwitchPhase::quiesce});
  run.tick(run.now + 18);
  cr_assert_eq(run.calls_off, 1);
  run.handle(event::Switching{2, SwitchPhase::commit});  // it came too late
  run.tick(run.now + 12);
  cr_assert_eq(run.machine.status().generation, 2);
  cr_assert_eq(run.machine.status().workers, 1);
  cr_assert_not(run.has_asked_to_leave(), "no program of the new generation is asked to leave");
  run.committed(2);  // the late answer changes nothing
  cr_assert_eq(run.machine.status().generation, 2);
}

Test(live, when_the_time_is_over_it_is_asked_before_it_is_decided) {
  Run run;
  run.grown();
  run.shrink(32);
  run.tick(run.now + 40);  // the loop was held up beyond both times
  cr_assert_eq(run.calls_off, 1);
  cr_assert_not(run.has_asked_to_leave());
  run.tick(run.now);
  cr_assert(run.has_asked_to_leave());
}

Test(live, gpus_go_back_before_the_switch_is_over_once_the_others_have_what_only_they_had) {
  Run run;
  run.grown();
  run.shrink(32);  // 30 with the margin
  cr_assert_float_eq(run.orders.back().leave_within_s, 18, 1e-9);
  run.handle(event::Switching{2, SwitchPhase::move});
  run.handle(event::LetGo{2});
  cr_assert(run.releases.empty(), "its program still runs");
  run.handle(event::Exited{{1, 0}, {}, 1});
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  run.handle(event::StepEnded{kCompanion, {}});
  run.handle(event::Released{kCompanion});
  run.tick(run.now + 60);  // the rest has no such deadline
  cr_assert_eq(run.calls_off, 0);
  run.committed(2);
  cr_assert_eq(run.machine.status().workers, 1);
  run.handle(event::Exited{{0, 0}, {}, 1});
  run.offered();  // and another growth may follow
  cr_assert_eq(run.machine.status().no_growth, std::string());
  cr_assert(run.signals.empty());
}

Test(live, a_leaver_s_end_may_be_heard_of_before_it_is_known_that_it_may_go) {
  Run run;
  run.grown();
  run.shrink(32);
  run.handle(event::Switching{2, SwitchPhase::move});
  run.handle(event::Exited{{1, 0}, {}, 1});
  cr_assert(run.releases.empty());
  run.handle(event::LetGo{2});
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  cr_assert_eq(run.calls_off, 0);
}

Test(live, a_leaver_that_was_let_go_and_stays_is_killed_by_the_deadline) {
  Run run;
  run.grown();
  run.shrink(22);
  run.handle(event::Switching{2, SwitchPhase::move});
  run.handle(event::LetGo{2});
  cr_assert_float_eq(run.machine.deadline().value(), run.now + 20, 1e-9);
  run.tick(run.now + 20);
  cr_assert(run.has_signalled(SIGKILL));
  run.handle(event::Exited{{1, 0}, {0, SIGKILL}, 1});
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
}

Test(live, a_switch_that_fails_after_that_goes_on_from_the_last_snapshot) {
  Run run;
  run.grown();
  run.shrink(32);
  run.handle(event::Switching{2, SwitchPhase::move});
  run.handle(event::LetGo{2});
  run.handle(event::Exited{{1, 0}, {}, 1});
  run.aborted(2);
  cr_assert(run.said.find("goes on from its last snapshot") != std::string::npos);
  run.tick(run.now);
  cr_assert(run.has_signalled(SIGKILL), "the old generation cannot go on without the leaver");
  run.handle(event::Exited{{0, 0}, {0, SIGKILL}, 2});
  run.handle(event::Exited{{0, 0}, {0, SIGKILL}, 1});
  run.handle(event::Hello{{0, 0}, "host", 1});
  cr_assert_eq(run.begin.generation, 3);
  cr_assert(run.begin.ranks == (Workers{{0, 0}}));
}

Test(live, the_end_of_a_released_companion_s_step_spoils_no_later_switch) {
  Run run;
  run.grown();
  run.shrink(30);
  run.committed(2);
  for (const int node : {0, 1}) run.handle(event::Exited{{node, 0}, {}, 1});
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  run.lend(2, kCompanion + 1);
  cr_assert_eq(run.orders.size(), 3u);
  run.handle(event::StepEnded{kCompanion, {}});
  cr_assert_eq(run.calls_off, 0);
}

namespace {

constexpr JobId kSecond = 10;

/// Three workers, two of them in two companions; the program of the first has ended by itself.
struct OneHasEnded : Run {
  OneHasEnded() {
    grown();
    lend(2, kSecond);
    committed(2);
    for (const int node : {0, 1}) handle(event::Exited{{node, 0}, {}, 1});
    handle(event::Exited{{1, 0}, {}, 2});
    cr_assert(releases.empty());
  }
  void asked_back(JobId job, int deadline_s) {
    handle(control::Shrink{{job}, deadline_s, "needed"});
  }
  /// Workers that do not leave when they are asked to are killed by then.
  void has_left_by(double time) {
    while (machine.deadline() && *machine.deadline() <= time && !has_signalled(SIGKILL))
      tick(*machine.deadline());
    cr_assert(has_asked_to_leave());
    cr_assert(has_signalled(SIGKILL), "the GPUs of job %u are not free in time", kSecond);
  }
};

}  // namespace

Test(live, gpus_asked_back_first_and_sooner_than_those_of_an_ended_program_are_free_in_time) {
  OneHasEnded run;
  const double begun = run.now;
  run.asked_back(kSecond, 9);  // 7 with the margin
  run.asked_back(kCompanion, 14);
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  run.has_left_by(begun + 7);
}

Test(live, gpus_asked_back_later_and_sooner_than_those_of_an_ended_program_are_free_in_time) {
  OneHasEnded run;
  run.asked_back(kCompanion, 32);
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  cr_assert_not(run.has_asked_to_leave(), "others may come to their end");
  run.tick(run.now + 1);
  const double begun = run.now;
  run.asked_back(kSecond, 9);
  run.has_left_by(begun + 7);
}
