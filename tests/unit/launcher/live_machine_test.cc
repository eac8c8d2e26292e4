// SPDX-License-Identifier: GPL-2.0-or-later
// The generation machine in live mode.
#include <algorithm>
#include <csignal>

#include "launcher/live_run.h"

using namespace live_run;

Test(live, an_offer_that_comes_before_the_first_program_is_part_of_its_first_generation) {
  Run run(false, false);
  cr_assert_eq(run.machine.status().no_growth, std::string());
  run.offered();
  cr_assert_eq(run.machine.status().state, JobState::warming);
  run.basic_up();
  run.allocated(kCompanion);
  cr_assert(run.starts.empty(), "the lent worker is on the way");
  run.handle(event::Hello{{1, 0}, "host", 2});
  cr_assert_eq(run.starts.size(), 1u);
  cr_assert(run.begin.ranks == (Workers{{0, 0}, {1, 0}}));
  cr_assert_eq(run.machine.status().generation, 0);
  cr_assert(run.orders.empty() && run.signals.empty());
  // They go back as any others do.
  run.handle(event::Begun{0, ""});
  run.shrink(30);
  cr_assert(run.orders.back().to == (Workers{{0, 0}}));
}

Test(live, useless_gpus_lent_before_the_program_told_its_sizes_go_back) {
  Run run(false, false);
  run.offered();
  run.basic_up();
  run.allocated(kCompanion);
  run.handle(event::Hello{{1, 0}, "host", 2});
  cr_assert_eq(run.begin.ranks.size(), 2u);
  run.handle(event::CanRunWith{{1, 3}});
  run.handle(event::Begun{0, ""});
  cr_assert(run.orders.empty(), "another GPU may be on its way");
  run.tick(run.machine.deadline().value());
  cr_assert(run.orders.back().to == (Workers{{0, 0}}));
  cr_assert(run.said.find("the program can use 1 of 2 GPUs") != std::string::npos);
  run.committed(1);
  run.handle(event::Exited{{1, 0}, {}, 0});
  cr_assert(run.releases == (std::vector<JobId>{kCompanion}));
}

Test(live, companions_that_a_program_cannot_use_go_back) {
  Run run;
  run.handle(event::CanRunWith{{1, 3}});
  run.lend();
  cr_assert(run.orders.empty() && run.releases.empty());
  run.tick(run.machine.deadline().value());
  cr_assert(run.releases == (std::vector<JobId>{kCompanion}));
  cr_assert(run.orders.empty(), "the program trains on");
}

Test(live, gpus_of_no_use_alone_wait_for_those_that_are_on_their_way) {
  Run run;
  run.handle(event::CanRunWith{{1, 3}});
  run.lend();
  run.tick(run.now + 50);
  run.offered();
  run.allocated(10);
  run.tick(run.now + 11);
  cr_assert(run.releases.empty());
  run.handle(event::Hello{{2, 0}, "host", 3});
  cr_assert_eq(run.orders.back().to.size(), 3u);
}

Test(live, lent_gpus_that_are_slow_to_come_up_do_not_keep_the_job_from_beginning) {
  Run run(false, false);
  run.offered();
  run.allocated(kCompanion);
  run.basic_up();
  cr_assert(run.starts.empty());
  const double by = run.machine.deadline().value();
  cr_assert_leq(by, run.now + 15);
  run.tick(by);
  cr_assert_eq(run.starts.size(), 1u);
  cr_assert_eq(run.starts[0].workers.size(), 1u);
  // They join as soon as they are there.
  run.handle(event::Begun{0, ""});
  run.handle(event::Hello{{1, 0}, "host", 2});
  cr_assert_eq(run.orders.size(), 1u);
}

Test(live, the_job_s_own_workers_wait_a_little_for_a_first_offer) {
  Run offered(false, false, 2);
  offered.basic_up();
  cr_assert(offered.starts.empty());
  offered.tick(offered.now + 1);
  offered.offered();
  offered.allocated(kCompanion);
  offered.tick(offered.now + 5);
  cr_assert(offered.starts.empty(), "what was offered is waited for longer");
  offered.handle(event::Hello{{1, 0}, "host", 2});
  cr_assert_eq(offered.starts[0].workers.size(), 2u);
  Run alone(false, false, 2);
  alone.basic_up();
  cr_assert_float_eq(alone.machine.deadline().value(), alone.now + 2, 1e-9);
  alone.tick(alone.now + 2);
  cr_assert_eq(alone.starts[0].workers.size(), 1u);
}

Test(live, a_refused_or_lost_offer_is_not_waited_for_any_longer) {
  Run refused(false, false);
  refused.offered();
  refused.basic_up();
  cr_assert(refused.starts.empty());
  refused.allocated(0);
  cr_assert_eq(refused.starts.size(), 1u);
  Run lost(false, false);
  lost.offered();
  lost.allocated(kCompanion);
  lost.basic_up();
  lost.handle(event::StepEnded{kCompanion, {1, 0}});
  cr_assert_eq(lost.starts.size(), 1u);
  cr_assert_eq(lost.releases, std::vector<JobId>{kCompanion});
  Run reclaimed(false, false);
  reclaimed.offered();
  reclaimed.allocated(kCompanion);
  reclaimed.basic_up();
  reclaimed.shrink(30);
  cr_assert_eq(reclaimed.starts.size(), 1u);
  cr_assert_eq(reclaimed.releases, std::vector<JobId>{kCompanion});
}

Test(live, a_growth_starts_programs_beside_the_training_and_signals_nobody) {
  Run run;
  run.lend();
  cr_assert_eq(run.orders.size(), 1u);
  cr_assert(run.orders[0].from == (Workers{{0, 0}}));
  cr_assert(run.orders[0].to == (Workers{{0, 0}, {1, 0}}));
  cr_assert_eq(run.starts.back().workers.size(), 2u);
  cr_assert(run.signals.empty());
  cr_assert_eq(run.machine.status().workers, 1);
  run.committed(1);
  cr_assert_eq(run.machine.status().workers, 2);
  cr_assert_eq(run.machine.status().generation, 1);
  cr_assert_eq(run.machine.status().state, JobState::active);
  cr_assert_float_eq(run.machine.status().stopped_s, 0.25, 1e-9);
  cr_assert(run.signals.empty());
}

Test(live, an_old_program_that_does_not_leave_after_the_commit_is_killed) {
  Run run;
  run.lend();
  run.committed(1);
  run.tick(run.now + 30);
  cr_assert_eq(run.signals.size(), 1u);
  cr_assert_eq(run.signals[0].signal, SIGKILL);
  cr_assert_eq(run.signals[0].generation, 0);
}

Test(live, a_new_program_that_dies_calls_the_switch_off) {
  Run run;
  run.lend();
  run.handle(event::Exited{{1, 0}, {1, 0}, 1});
  cr_assert_eq(run.calls_off, 1);
  run.aborted(1);
  run.handle(event::Exited{{0, 0}, {0, SIGKILL}, 1});
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  cr_assert_eq(run.orders.size(), 1u);
  cr_assert_not(run.code.has_value());
}

Test(live, a_shim_that_is_lost_after_its_growth_failed_keeps_no_gpus) {
  Run run;
  run.lend();
  run.aborted(1);
  cr_assert(run.releases.empty(), "its program is still to end");
  run.handle(event::Lost{{1, 0}});
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  cr_assert_not(run.code.has_value());
}

Test(live, a_shim_that_is_lost_before_its_worker_takes_part_costs_no_restart) {
  Run run;
  run.lend();
  run.handle(event::Lost{{1, 0}});
  cr_assert_eq(run.calls_off, 1);
  run.aborted(1);
  cr_assert_eq(run.machine.status().workers, 1);
  cr_assert_eq(run.machine.status().generation, 0);
  cr_assert(std::all_of(run.signals.begin(), run.signals.end(),
                        [](const auto& each) { return each.generation == 1; }));
  run.handle(event::Exited{{0, 0}, {0, SIGKILL}, 1});
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  cr_assert_eq(run.machine.status().no_growth, std::string());
}

Test(live, a_worker_whose_shim_does_not_answer_the_commit_is_lost_to_the_new_generation) {
  Run run;
  run.lend();
  run.handle(event::Switching{1, SwitchPhase::commit});
  SwitchOutcome outcome;
  outcome.committed = true;
  outcome.lost = {{1, 0}};
  run.handle(event::Switched{1, outcome});
  cr_assert(run.said.find("lost job 9") != std::string::npos, "%s", run.said.c_str());
  cr_assert(run.has_signalled(SIGKILL));
  cr_assert_not(run.code.has_value());
}

Test(live, so_is_one_of_which_that_is_heard_later) {
  Run run;
  run.lend();
  run.handle(event::Switching{1, SwitchPhase::commit});
  run.tick(run.now + 600);
  run.tick(run.now + 30);
  cr_assert_eq(run.machine.status().workers, 2);
  SwitchOutcome outcome;
  outcome.committed = true;
  outcome.lost = {{1, 0}};
  run.handle(event::Switched{1, outcome});
  cr_assert(run.said.find("lost job 9") != std::string::npos, "%s", run.said.c_str());
}

Test(live, a_program_that_does_not_stop_is_resized_by_restarts) {
  Run run;
  run.grown();
  run.shrink(30);
  run.aborted(2, true);
  cr_assert(run.said.find("stopped answering") != std::string::npos);
  cr_assert(run.has_signalled(SIGUSR1), "they would not agree, either");
}

namespace {

/// A growth from one worker to two for which a GPU has no room; whether the old program handles the
/// restart signal.
struct GrownWithoutRoom : Run {
  explicit GrownWithoutRoom(bool listens, bool lacks_room = true) {
    if (listens) handle(event::Listens{{0, 0}, 0});
    lend();
    aborted(1, false, "shim 0: no room on GPU 0: 9000 bytes are needed, 4000 are free", lacks_room);
    for (const int node : {0, 1}) handle(event::Exited{{node, 0}, {0, SIGKILL}, 1});
  }
};

}  // namespace

Test(live, a_growth_that_does_not_fit_a_gpu_is_made_by_a_restart_at_once) {
  GrownWithoutRoom run(true);
  cr_assert(
      run.said.find("live mode: shim 0: no room on GPU 0: 9000 bytes are needed, 4000 are free; "
                    "the job grows by a restart") != std::string::npos,
      "%s", run.said.c_str());
  cr_assert(run.has_signalled(SIGUSR1) && run.releases.empty());
  run.handle(event::Exited{{0, 0}, {}, 0});
  cr_assert_eq(run.starts.back().workers.size(), 2u, "the lent worker takes part");
  cr_assert_not(run.code.has_value());
}

Test(live, a_sentence_about_room_alone_leads_to_no_restart) {
  GrownWithoutRoom run(true, false);
  cr_assert_not(run.has_signalled(SIGUSR1));
}

Test(live, a_growth_that_does_not_fit_waits_where_programs_would_leave_without_their_state) {
  GrownWithoutRoom run(false);
  cr_assert_not(run.has_signalled(SIGUSR1));
  cr_assert(run.releases == (std::vector<JobId>{kCompanion}));
}

Test(live, an_exit_during_the_move_counts_only_if_the_old_generation_stays) {
  Run run;
  run.lend();
  run.handle(event::Switching{1, SwitchPhase::move});
  run.handle(event::Exited{{0, 0}, {0, SIGKILL}, 0});
  cr_assert_eq(run.calls_off, 0);
  run.committed(1);
  cr_assert_eq(run.machine.status().workers, 2);
  cr_assert_not(run.code.has_value());
}

Test(live, a_program_without_the_runtime_is_grown_by_restarts_after_a_while) {
  Run run(false);
  run.handle(event::Listens{{0, 0}, 0});
  cr_assert_not(run.machine.status().no_growth.empty());
  run.tick(*run.machine.deadline());
  cr_assert_eq(run.machine.status().no_growth, std::string());
  cr_assert(run.said.find("resized by restarts") != std::string::npos);
  run.lend();
  cr_assert(run.orders.empty());
  cr_assert(run.has_signalled(SIGUSR1));
}

Test(live, a_client_of_the_runtime_needs_no_signal_handler) {
  Run run;
  cr_assert_eq(run.machine.status().no_growth, std::string());
}

Test(live, the_training_s_end_during_a_switch_is_the_run_s_end) {
  Run run;
  run.lend();
  run.handle(event::Exited{{0, 0}, {}, 0});
  cr_assert_eq(run.calls_off, 1);
  run.aborted(1);
  cr_assert_eq(run.code.value_or(-1), 0);
}

Test(live, programs_that_could_not_begin_and_left_have_not_trained) {
  Run run(false);
  cr_assert_not(run.begin.from_snapshot, "there is none");
  run.handle(event::Begun{0, "ranks 0 and 1 differ in w"});
  run.handle(event::Exited{{0, 0}, {}, 0});
  cr_assert_eq(run.code.value_or(-1), 1);

  Run late(false);  // one that was still loading was told nothing
  late.handle(event::Begun{0, "ranks 0 and 1 differ in w"});
  late.tick(*late.machine.deadline());
  cr_assert(late.has_signalled(SIGTERM));
  late.handle(event::Exited{{0, 0}, {0, SIGTERM}, 0});
  cr_assert_eq(late.code.value_or(-1), 1);
}

Test(live, where_a_snapshot_is_of_no_use_the_run_goes_on_from_its_checkpoint) {
  Run run;
  run.grown();
  run.handle(event::Lost{{1, 0}});
  run.handle(event::Exited{{0, 0}, {0, SIGKILL}, 1});
  run.handle(event::Hello{{0, 0}, "host", 3});
  cr_assert(run.begin.generation == 2 && run.begin.from_snapshot);
  for (const int generation : {2, 3}) {
    cr_assert_not(run.code.has_value());
    run.handle(event::Begun{generation, "no memory"});
    run.handle(event::Exited{{0, 0}, {generation == 2 ? 1 : 0, 0}, generation});
    run.handle(event::Hello{{0, 0}, "host", 3});
    if (run.machine.deadline() && generation == 2) run.tick(*run.machine.deadline());
    if (generation == 2) cr_assert(run.begin.generation == 3 && !run.begin.from_snapshot);
  }
  cr_assert_eq(run.code.value_or(-1), 1, "it is not tried for ever");
}

Test(live, programs_that_could_not_begin_with_lent_gpus_begin_without_them) {
  for (const bool are_back : {false, true}) {
    Run run(false, false);
    run.offered();
    run.basic_up();
    run.allocated(kCompanion);
    run.handle(event::Hello{{1, 0}, "host", 2});
    run.handle(event::Begun{0, "ranks 0 and 1 differ in w"});
    for (const int node : {1, 0}) {
      run.handle(event::Exited{{node, 0}, {}, 0});
      run.handle(event::Hello{{node, 0}, "host", 3});
      if (are_back) run.shrink(30);
    }
    cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
    cr_assert(run.begin.generation == 1 && run.begin.ranks == (Workers{{0, 0}}));
    cr_assert_not(run.code.has_value());
  }
}

Test(live, a_worker_that_is_lost_before_the_first_program_is_waited_for_without_a_hurry) {
  Run run(true, false, 2);
  run.basic_up();
  run.handle(event::Lost{{0, 0}});
  run.tick(run.now + 3);
  cr_assert_gt(*run.machine.deadline(), run.now);
}

Test(live, gpus_that_take_one_program_at_a_time_are_resized_by_restarts) {
  Run run(false, false);
  run.handle(event::Hello{{0, 0}, "host", 1, 0, "GPU 0 is in compute mode X"});
  cr_assert_eq(run.starts.size(), 1u);
  cr_assert_not(run.starts[0].live, "the program finds no runtime");
  cr_assert_eq(run.begin.generation, -1, "none is ordered to begin");
  cr_assert_eq(run.machine.status().switched,
               std::string("node1: GPU 0 is in compute mode X; the job is resized by restarts"));
  run.handle(event::Listens{{0, 0}, 0});
  run.lend();
  cr_assert(run.orders.empty());
  cr_assert(run.has_signalled(SIGUSR1));
}

Test(live, a_live_training_joins_lent_gpus_that_take_one_program_by_a_restart) {
  Run run;
  cr_assert(run.starts[0].live);
  run.handle(event::Listens{{0, 0}, 0});
  run.offered();
  run.allocated(kCompanion);
  run.handle(event::Hello{{1, 0}, "host", 2, 0, "GPU 0 is in compute mode X"});
  cr_assert(run.orders.empty(), "no program starts beside another");
  cr_assert(run.has_signalled(SIGUSR1));
  run.handle(event::Exited{{0, 0}, {}});
  run.handle(event::Hello{{0, 0}, "host", 1});
  cr_assert_eq(run.starts.size(), 2u);
  cr_assert_eq(run.starts[1].workers.size(), 2u);
  cr_assert_not(run.starts[1].live);
}

Test(live, a_switch_goes_on_where_other_gpus_turn_out_to_take_one_program) {
  Run run;
  run.offered();
  run.allocated(kCompanion);
  run.handle(event::Hello{{1, 0}, "host", 2});
  cr_assert_eq(run.orders.size(), 1u);
  run.offered();
  run.allocated(10);
  run.handle(event::Hello{{2, 0}, "host", 3, 0, "GPU 0 is in compute mode X"});
  cr_assert_not(run.has_asked_to_leave());
  run.committed(1);
  run.handle(event::Exited{{0, 0}, {}, 0});
  run.handle(event::Hello{{0, 0}, "host", 1});
  cr_assert_eq(run.orders.size(), 1u);
  cr_assert(run.has_asked_to_leave(), "the third joins by a restart");
}
