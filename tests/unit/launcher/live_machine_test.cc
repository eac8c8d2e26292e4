// SPDX-License-Identifier: GPL-2.0-or-later
// The epoch machine in live mode.
#include <algorithm>
#include <criterion/criterion.h>
#include <csignal>

#include "launcher/epoch_machine.h"
#include "support/worker_nodes.h"

using namespace swell;
using namespace swell::control;
using namespace swell::launcher;

namespace {

constexpr JobId kJob = 5, kCompanion = 9;

EpochMachine::Settings live_settings(double first_offer_s = 0) {
  EpochMachine::Settings settings;
  settings.job = kJob;
  settings.restart_signal = SIGUSR1;
  settings.live = true;
  settings.first_offer_s = first_offer_s;
  return settings;
}

/// One basic worker (node 0) whose program has begun with the runtime.
struct Run {
  explicit Run(bool begins = true, bool is_up = true, double first_offer_s = 0)
      : machine(live_settings(first_offer_s), {worker_node(0, kJob, "node1", 1)}) {
    machine.start(now);
    collect();
    if (!is_up) return;
    basic_up();
    cr_assert_eq(begin.epoch, 0);
    if (begins) event([&] { machine.begun(now, 0, ""); });
  }
  void basic_up() {
    event([&] { machine.hello(now, {0, 0}, "host", 1); });
  }
  void offered() {
    Grow message;
    message.offers.resize(1);
    event([&] { machine.grow(now, message); });
  }
  /// salloc's answer to an offer; no job: it was refused.
  void allocated(JobId companion) {
    event([&] {
      machine.allocated(now, {{"nonce", companion, "", {worker_node(0, 0, "node2", 1)}}});
    });
  }
  /// A companion of one GPU on node2 is up: node `id`.
  void lend(int id = 1, JobId companion = kCompanion) {
    Grow message;
    message.offers.resize(1);
    event([&] { machine.grow(now, message); });
    event([&] {
      machine.allocated(now, {{"nonce", companion, "", {worker_node(0, 0, "node2", 1)}}});
    });
    event([&] { machine.hello(now, {id, 0}, "host", 2); });
  }
  void grown() {
    lend();
    committed(1);
    event([&] { machine.exited(now, {0, 0}, {}, 0); });
    cr_assert_eq(machine.status().workers, 2);
  }
  void committed(int epoch) {
    event([&] { machine.switching(now, epoch, "quiesce"); });
    SwitchOutcome outcome;
    outcome.committed = true;
    outcome.stopped_s = 0.25;
    outcome.summary = "epoch at step 7";
    event([&] { machine.switched(now, epoch, outcome); });
  }
  void aborted(int epoch, bool is_silent = false) {
    SwitchOutcome outcome;
    outcome.why = outcome.summary = "it broke";
    outcome.is_silent = is_silent;
    event([&] { machine.switched(now, epoch, outcome); });
  }
  void shrink(int deadline_s) {
    event([&] { machine.shrink(now, {{kCompanion}, deadline_s, "needed"}); });
  }
  void tick(double time) {
    now = time;
    event([&] { machine.tick(now); });
  }
  template <typename F>
  void event(F function) {
    function();
    collect();
  }
  void collect() {
    for (const action::Any& each : machine.take()) {
      if (const auto* one = std::get_if<action::BeginLive>(&each)) begin = *one;
      if (const auto* one = std::get_if<action::SwitchLive>(&each)) orders.push_back(*one);
      if (const auto* one = std::get_if<action::StartWorkers>(&each)) starts.push_back(*one);
      if (const auto* one = std::get_if<action::SignalWorkers>(&each)) signals.push_back(*one);
      if (const auto* one = std::get_if<action::Release>(&each)) releases.push_back(one->job);
      if (const auto* one = std::get_if<action::Finish>(&each)) code = one->code;
      if (const auto* one = std::get_if<action::Say>(&each)) said += one->line + "\n";
      calls_off += std::holds_alternative<action::CallOffLive>(each);
    }
  }
  bool has_signalled(int signal) const {
    return std::any_of(signals.begin(), signals.end(),
                       [&](const auto& each) { return each.signal == signal; });
  }

  double now = 100;
  EpochMachine machine;
  action::BeginLive begin{-1, {}};
  std::vector<action::SwitchLive> orders;
  std::vector<action::StartWorkers> starts;
  std::vector<action::SignalWorkers> signals;
  std::vector<JobId> releases;
  int calls_off = 0;
  std::optional<int> code;
  std::string said;
};

using Workers = std::vector<WorkerId>;

}  // namespace

Test(live, an_offer_that_comes_before_the_first_program_is_part_of_its_first_epoch) {
  Run run(false, false);
  cr_assert_eq(run.machine.status().no_growth, std::string());
  run.offered();
  cr_assert_eq(run.machine.status().state, JobState::warming);
  run.basic_up();
  run.allocated(kCompanion);
  cr_assert(run.starts.empty(), "the lent worker is on the way");
  run.event([&] { run.machine.hello(run.now, {1, 0}, "host", 2); });
  cr_assert_eq(run.starts.size(), 1u);
  cr_assert(run.begin.ranks == (Workers{{0, 0}, {1, 0}}));
  cr_assert_eq(run.machine.status().epoch, 0);
  cr_assert(run.orders.empty() && run.signals.empty());
  // They go back as any others do.
  run.event([&] { run.machine.begun(run.now, 0, ""); });
  run.shrink(30);
  cr_assert(run.orders.back().to == (Workers{{0, 0}}));
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
  run.event([&] { run.machine.begun(run.now, 0, ""); });
  run.event([&] { run.machine.hello(run.now, {1, 0}, "host", 2); });
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
  offered.event([&] { offered.machine.hello(offered.now, {1, 0}, "host", 2); });
  cr_assert_eq(offered.starts[0].workers.size(), 2u);
  Run alone(false, false, 2);
  alone.basic_up();
  cr_assert_float_eq(alone.machine.deadline().value(), alone.now + 2, 1e-9);
  alone.tick(alone.now + 2);
  cr_assert_eq(alone.starts[0].workers.size(), 1u);
}

Test(live, a_second_reclaim_during_a_switch_is_followed_by_another_switch) {
  Run run;
  run.grown();
  run.lend(2, kCompanion + 1);
  run.committed(2);
  for (const int node : {0, 1}) run.event([&] { run.machine.exited(run.now, {node, 0}, {}, 1); });
  cr_assert_eq(run.machine.status().workers, 3);
  run.event([&] { run.machine.shrink(run.now, {{kCompanion}, 30, "needed"}); });
  cr_assert(run.orders.back().to == (Workers{{0, 0}, {2, 0}}));
  run.event([&] { run.machine.shrink(run.now, {{kCompanion + 1}, 30, "needed"}); });
  cr_assert_eq(run.calls_off, 1);
  run.aborted(3);
  cr_assert_not(run.has_signalled(SIGUSR1), "there is time for a switch to the one that is left");
  for (const int node : {0, 2})
    run.event([&] { run.machine.exited(run.now, {node, 0}, {0, SIGKILL}, 3); });
  cr_assert(run.orders.back().to == (Workers{{0, 0}}));
  run.committed(4);
  for (const int node : {0, 1, 2})
    run.event([&] { run.machine.exited(run.now, {node, 0}, {}, 2); });
  cr_assert_eq(run.releases, (std::vector<JobId>{kCompanion, kCompanion + 1}));
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
  lost.event([&] { lost.machine.step_ended(lost.now, kCompanion, {1, 0}); });
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
  cr_assert_eq(run.machine.status().epoch, 1);
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
  cr_assert_eq(run.signals[0].epoch, 0);
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
  run.event([&] { run.machine.exited(run.now, {1, 0}, {}, 1); });
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  run.event([&] { run.machine.exited(run.now, {0, 0}, {}, 1); });
  cr_assert_eq(run.machine.status().workers, 1);
  cr_assert(run.signals.empty());
  cr_assert_not(run.code.has_value());
}

Test(live, a_growth_that_fails_leaves_the_training_and_gives_the_gpus_back) {
  Run run;
  run.lend();
  run.aborted(1);
  cr_assert_eq(run.machine.status().workers, 1);
  cr_assert_eq(run.machine.status().epoch, 0);
  cr_assert(std::all_of(run.signals.begin(), run.signals.end(),
                        [](const auto& each) { return each.epoch == 1; }));
  cr_assert(run.has_signalled(SIGKILL));
  run.event([&] { run.machine.exited(run.now, {0, 0}, {0, SIGKILL}, 1); });
  run.event([&] { run.machine.exited(run.now, {1, 0}, {0, SIGKILL}, 1); });
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  cr_assert(run.machine.status().no_growth.find("it broke") != std::string::npos);
  cr_assert_not(run.code.has_value());
}

Test(live, a_new_program_that_dies_calls_the_switch_off) {
  Run run;
  run.lend();
  run.event([&] { run.machine.exited(run.now, {1, 0}, {1, 0}, 1); });
  cr_assert_eq(run.calls_off, 1);
  run.aborted(1);
  run.event([&] { run.machine.exited(run.now, {0, 0}, {0, SIGKILL}, 1); });
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  cr_assert_eq(run.orders.size(), 1u);
  cr_assert_not(run.code.has_value());
}

Test(live, a_shim_that_is_lost_before_its_worker_takes_part_costs_no_restart) {
  Run run;
  run.lend();
  run.event([&] { run.machine.lost(run.now, {1, 0}); });
  cr_assert_eq(run.calls_off, 1);
  run.aborted(1);
  cr_assert_eq(run.machine.status().workers, 1);
  cr_assert_eq(run.machine.status().epoch, 0);
  cr_assert(std::all_of(run.signals.begin(), run.signals.end(),
                        [](const auto& each) { return each.epoch == 1; }));
  run.event([&] { run.machine.exited(run.now, {0, 0}, {0, SIGKILL}, 1); });
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  cr_assert_eq(run.machine.status().no_growth, std::string());
}

Test(live, a_reclaim_during_a_growth_calls_it_off_and_growth_does_not_wait_for_that) {
  Run run;
  run.lend();
  run.shrink(30);
  cr_assert_eq(run.calls_off, 1);
  run.aborted(1);
  cr_assert_eq(run.machine.status().no_growth, std::string());
  run.event([&] { run.machine.exited(run.now, {0, 0}, {1, 0}, 1); });
  run.event([&] { run.machine.exited(run.now, {1, 0}, {1, 0}, 1); });
  cr_assert_eq(run.releases, std::vector<JobId>{kCompanion});
  cr_assert_eq(run.orders.size(), 1u);
}

Test(live, a_reclaim_that_is_told_twice_goes_on) {
  Run run;
  run.grown();
  run.event([&] { run.machine.notice(run.now, {1, 0}, SIGURG); });
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
  run.event([&] { run.machine.exited(run.now, {0, 0}, {}, 0); });
  cr_assert_eq(run.orders.size(), 2u);
  cr_assert(run.orders[1].from == (Workers{{0, 0}, {1, 0}}));
}

Test(live, a_reclaim_that_fails_falls_back_to_the_signal_with_one_line) {
  Run run;
  run.grown();
  run.shrink(30);
  run.aborted(2);
  cr_assert(run.has_signalled(SIGUSR1));
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
  cr_assert(run.has_signalled(SIGUSR1));
}

Test(live, a_switch_that_is_being_committed_when_the_time_is_over_holds) {
  Run run;
  run.grown();
  run.shrink(32);
  run.event([&] { run.machine.switching(run.now, 2, "quiesce"); });
  run.tick(run.now + 18);
  cr_assert_eq(run.calls_off, 1);
  run.event([&] { run.machine.switching(run.now, 2, "commit"); });  // it came too late
  run.tick(run.now + 12);
  cr_assert_eq(run.machine.status().epoch, 2);
  cr_assert_eq(run.machine.status().workers, 1);
  cr_assert_not(run.has_signalled(SIGUSR1), "no program of the new epoch is asked to leave");
  run.committed(2);  // the late answer changes nothing
  cr_assert_eq(run.machine.status().epoch, 2);
}

Test(live, when_the_time_is_over_it_is_asked_before_it_is_decided) {
  Run run;
  run.grown();
  run.shrink(32);
  run.tick(run.now + 40);  // the loop was held up beyond both times
  cr_assert_eq(run.calls_off, 1);
  cr_assert_not(run.has_signalled(SIGUSR1));
  run.tick(run.now);
  cr_assert(run.has_signalled(SIGUSR1));
}

Test(live, a_worker_whose_shim_does_not_answer_the_commit_is_lost_to_the_new_epoch) {
  Run run;
  run.lend();
  run.event([&] { run.machine.switching(run.now, 1, "commit"); });
  SwitchOutcome outcome;
  outcome.committed = true;
  outcome.lost = {{1, 0}};
  run.event([&] { run.machine.switched(run.now, 1, outcome); });
  cr_assert(run.said.find("lost job 9") != std::string::npos, "%s", run.said.c_str());
  cr_assert(run.has_signalled(SIGKILL));
  cr_assert_not(run.code.has_value());
}

Test(live, so_is_one_of_which_that_is_heard_later) {
  Run run;
  run.lend();
  run.event([&] { run.machine.switching(run.now, 1, "commit"); });
  run.tick(run.now + 600);
  run.tick(run.now + 30);
  cr_assert_eq(run.machine.status().workers, 2);
  SwitchOutcome outcome;
  outcome.committed = true;
  outcome.lost = {{1, 0}};
  run.event([&] { run.machine.switched(run.now, 1, outcome); });
  cr_assert(run.said.find("lost job 9") != std::string::npos, "%s", run.said.c_str());
}

Test(live, a_program_that_does_not_stop_is_resized_by_restarts) {
  Run run;
  run.grown();
  run.shrink(30);
  run.aborted(2, true);
  cr_assert(run.said.find("stopped answering") != std::string::npos);
  cr_assert(run.has_signalled(SIGUSR1));
}

Test(live, an_exit_during_the_move_counts_only_if_the_old_epoch_stays) {
  Run run;
  run.lend();
  run.event([&] { run.machine.switching(run.now, 1, "move"); });
  run.event([&] { run.machine.exited(run.now, {0, 0}, {0, SIGKILL}, 0); });
  cr_assert_eq(run.calls_off, 0);
  run.committed(1);
  cr_assert_eq(run.machine.status().workers, 2);
  cr_assert_not(run.code.has_value());
}

Test(live, a_program_without_the_runtime_is_grown_by_restarts_after_a_while) {
  Run run(false);
  run.event([&] { run.machine.listens(run.now, {0, 0}, 0); });
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
  run.event([&] { run.machine.exited(run.now, {0, 0}, {}, 0); });
  cr_assert_eq(run.calls_off, 1);
  run.aborted(1);
  cr_assert_eq(run.code.value_or(-1), 0);
}
