// SPDX-License-Identifier: GPL-2.0-or-later
// The generation machine in live mode: GPUs are taken away by Slurm, or their programs end by
// themselves.
#include <algorithm>
#include <csignal>

#include "launcher/live_run.h"

using namespace live_run;

Test(live, the_training_s_end_while_gpus_go_back_is_the_run_s_end) {
  Run run;
  run.grown();
  run.shrink(30);
  const std::size_t starts = run.starts.size();
  for (const int node : {0, 1}) run.handle(event::Exited{{node, 0}, {}, 1});
  cr_assert_eq(run.calls_off, 1);
  run.aborted(2);
  cr_assert_eq(run.code.value_or(-1), 0);
  cr_assert_eq(run.starts.size(), starts, "it is not run again");
  cr_assert_not(run.has_asked_to_leave());
}

Test(live, where_a_program_has_ended_the_others_may_end_too_before_they_are_asked_to_leave) {
  for (const bool ends : {true, false}) {
    Run run;
    run.grown();
    run.shrink(30);
    run.handle(event::Exited{{0, 0}, {}, 1});
    run.aborted(2);
    run.handle(event::Exited{{0, 0}, {0, SIGKILL}, 2});
    run.handle(event::Hello{{0, 0}, "host", 3});
    cr_assert_eq(run.orders.size(), 2u, "there is nothing to switch");
    cr_assert_not(run.has_asked_to_leave());
    cr_assert_leq(*run.machine.deadline(), run.now + 30);
    if (!ends) {
      run.tick(*run.machine.deadline());
      cr_assert(run.has_asked_to_leave(), "the GPUs are needed");
    }
    const std::size_t starts = run.starts.size();
    run.handle(event::Exited{{1, 0}, {}, 1});
    cr_assert_eq(run.code.value_or(-1), ends ? 0 : -1);
    cr_assert_eq(run.starts.size(), starts + (ends ? 0 : 1));
  }
}

Test(live, a_program_that_fails_while_gpus_go_back_is_started_again_with_the_others) {
  Run run;
  run.grown();
  run.shrink(30);
  run.handle(event::Exited{{0, 0}, {0, SIGKILL}, 1});
  run.handle(event::Hello{{0, 0}, "host", 3});
  run.aborted(2);
  cr_assert(run.has_asked_to_leave());
  run.handle(event::Exited{{0, 0}, {0, SIGKILL}, 2});
  const std::size_t starts = run.starts.size();
  run.handle(event::Exited{{1, 0}, {}, 1});
  run.handle(event::Hello{{0, 0}, "host", 4});
  cr_assert_not(run.code.has_value());
  cr_assert_eq(run.starts.size(), starts + 1);
  cr_assert_eq(run.machine.status().workers, 1);
}

Test(live, lent_workers_that_are_lost_while_their_gpus_go_back_are_done_without) {
  for (const int signal : {0, SIGKILL, SIGTERM}) {
    Run run;
    run.grown();
    if (signal == SIGTERM) run.handle(event::Notice{{1, 0}, SIGTERM});
    else run.shrink(30);
    if (signal == 0) run.handle(event::Lost{{1, 0}});
    else run.handle(event::Exited{{1, 0}, {0, signal}, 1});
    run.aborted(2);
    run.handle(event::Exited{{0, 0}, {0, SIGKILL}, 2});
    cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
    const std::size_t starts = run.starts.size();
    cr_assert(std::any_of(run.signals.begin(), run.signals.end(),
                          [](const auto& each) {
                            return each.signal == SIGKILL && each.generation == -1 &&
                                   each.workers == (Workers{{0, 0}});
                          }),
              "it would wait for the lost worker for ever");
    run.handle(event::Exited{{0, 0}, {0, SIGKILL}, 1});
    run.handle(event::Hello{{0, 0}, "host", 3});
    cr_assert_eq(run.starts.size(), starts + 1);
    cr_assert(run.begin.ranks == (Workers{{0, 0}}));
    cr_assert_not(run.code.has_value());
  }
}

Test(live, lent_programs_that_slurm_has_ended_are_done_without_whatever_they_say) {
  struct {
    Exit exit;
    bool notice_first;
  } const cases[] = {{{0, SIGTERM}, false}, {{1, 0}, false}, {{0, 0}, false}, {{0, 0}, true}};
  for (const auto& each : cases) {
    Run run;
    run.grown();
    if (each.notice_first) run.handle(event::Notice{{1, 0}, SIGTERM});
    run.handle(event::Exited{{1, 0}, each.exit, 1});
    if (each.notice_first) run.aborted(2);
    else run.handle(event::Notice{{1, 0}, SIGTERM});
    cr_assert(std::any_of(run.signals.begin(), run.signals.end(),
                          [](const auto& signal) {
                            return signal.signal == SIGKILL && signal.generation == -1 &&
                                   signal.workers == (Workers{{0, 0}});
                          }),
              "it would wait for its peer for ever");
    cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
    if (each.notice_first) run.handle(event::Exited{{0, 0}, {0, SIGKILL}, 2});
    run.handle(event::Exited{{0, 0}, {0, SIGKILL}, 1});
    run.handle(event::Hello{{0, 0}, "host", 3});
    cr_assert(run.begin.ranks == (Workers{{0, 0}}));
    cr_assert_not(run.code.has_value());
  }
}

Test(live, workers_that_train_on_when_lent_programs_have_ended_are_asked_to_leave_in_the_end) {
  for (const std::optional<int> code : {std::optional(0), std::optional(1), std::optional<int>()}) {
    Run run;
    run.grown();
    run.handle(event::Exited{{1, 0}, {}, 1});
    run.shrink(30);  // and of Slurm's TERM, if it was that, nothing is heard any more
    cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
    if (code) {
      run.handle(event::Exited{{0, 0}, {*code, 0}, 1});
      run.handle(event::Hello{{0, 0}, "host", 3});
      if (*code != 0) run.tick(*run.machine.deadline());
      cr_assert_eq(run.code.value_or(-1), *code == 0 ? 0 : -1, "its peer was ended");
      continue;
    }
    run.tick(*run.machine.deadline());
    cr_assert(run.has_asked_to_leave());
  }
}

Test(live, a_peer_s_error_is_put_down_to_lent_programs_that_have_left_though_their_gpus_are_back) {
  Run run;
  run.grown();
  run.handle(event::Exited{{0, 0}, {1, 0}, 1});
  run.handle(event::Hello{{0, 0}, "host", 3});
  run.handle(event::Exited{{1, 0}, {}, 1});
  run.shrink(30);
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  run.tick(*run.machine.deadline());
  cr_assert_not(run.code.has_value());
  cr_assert(run.begin.generation == 2 && run.begin.ranks == (Workers{{0, 0}}));
}

Test(live, a_lent_node_that_is_lost_as_it_would_join_costs_nothing_in_whatever_order_it_is_heard) {
  Run run;
  run.lend();
  run.handle(event::StepEnded{kCompanion, {0, SIGKILL}});
  run.handle(event::Lost{{1, 0}});
  run.aborted(1);
  run.handle(event::Exited{{0, 0}, {0, SIGKILL}, 1});
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  if (run.machine.deadline()) run.tick(*run.machine.deadline());
  cr_assert_not(run.has_signalled(SIGTERM), "the job's own program trains on");
  cr_assert_not(run.code.has_value());
}

Test(live, a_run_that_is_ended_during_a_switch_forgets_nobody_s_end) {
  Run run;
  run.grown();
  run.shrink(30);
  run.handle(event::Exited{{0, 0}, {}, 1});
  run.handle(event::Signalled{SIGINT});
  run.aborted(2);
  run.handle(event::Exited{{1, 0}, {0, SIGINT}, 1});
  cr_assert(run.code.has_value());
}
