// SPDX-License-Identifier: GPL-2.0-or-later
// The generation machine: a growth takes no longer than the job's owner allows.
#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "launcher/generation_run.h"
#include "launcher/live_run.h"
#include "runtime/wire/messages.h"

using namespace generation_run;

namespace {

constexpr const char* kTooLong = "the growth took longer than 20 s (grow=20)";

GenerationMachine::Settings limited(double recover_s = 0) {
  GenerationMachine::Settings settings;
  settings.grow_s = 20;
  settings.recover_s = recover_s;
  return settings;
}

/// Has the machine look whenever it asks to, until then.
template <typename R>
void run_until(R& run, double time) {
  for (int looks = 0; run.machine.deadline() && *run.machine.deadline() <= time; ++looks) {
    cr_assert_lt(looks, 100, "it asks for the same time again and again");
    run.tick(std::max(run.now, *run.machine.deadline()));
  }
  run.tick(time);
}

/// A run of 6 workers, 4 of them lent, that is offered 4 more at `since`.
struct Growing : Run {
  explicit Growing(double recover_s = 0) : Run(limited(recover_s)) {
    grown();
    run_until(*this, now + 1000);
    cr_assert(releases.empty(), "that growth is over");
    since = now;
    grow(10, 4);
  }
  double since = 0;
};

/// One worker that trains live, and lent GPUs for a second one since `since`.
struct LiveGrowing : live_run::Run {
  LiveGrowing() : live_run::Run(true, true, 0, 0, 20) {
    since = now;
    lend();
    cr_assert_eq(orders.size(), 1u);
  }
  double since = 0;
};

}  // namespace

Test(growth_limit, gpus_whose_shims_do_not_come_up_in_that_time_go_back) {
  Growing run;
  run_until(run, run.since + 19.9);
  cr_assert(run.releases.empty());
  run_until(run, run.since + 20);
  cr_assert_eq(run.releases, Jobs{10});
  cr_assert(run.has_said(kTooLong));
  cr_assert(run.signals.empty(), "training was not touched");
  cr_assert_eq(run.state(), JobState::active);
  cr_assert_eq(run.no_growth(), kTooLong);
}

Test(growth_limit, gpus_that_slurm_allocates_after_that_time_go_back_at_once) {
  Run run(limited());
  Grow message;
  message.offers.resize(1);
  run.handle(message);
  run.now += 21;
  run.handle(event::Allocated{{{"nonce", 9, "", {worker_node(0, 0, "node2", 4)}}}});
  run_until(run, run.now);
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert_eq(run.steps, Jobs{job}, "no step was started there");
}

Test(growth_limit, workers_that_leave_late_begin_again_without_the_gpus) {
  Growing run;
  run.hello(2, 4);
  cr_assert(run.signalled(SIGUSR1, 6), "they write their checkpoints");
  run_until(run, run.since + 20);
  cr_assert_eq(run.releases, Jobs{10}, "they are not waited for");
  cr_assert(run.signalled(SIGKILL, 0), "nor are they killed: they have their time to leave");
  run.leave(0, 2);
  run.leave(1, 4);
  cr_assert_eq(run.starts, 3);
  cr_assert_eq(run.workers, 6u, "as before");
}

Test(growth_limit, a_program_that_is_not_ready_in_that_time_is_started_again_as_it_was_before) {
  Growing run;
  run.hello(2, 4);
  run.deaf = true;
  run.leave(0, 2);
  run.leave(1, 4);
  cr_assert_eq(run.workers, 10u);
  run.signals.clear();
  run_until(run, run.since + 19.9);
  cr_assert(run.signals.empty());
  run_until(run, run.since + 20);
  cr_assert(run.signalled(SIGKILL, 10));
  run.leave(2, 4, {0, SIGKILL});
  cr_assert_eq(run.releases, Jobs{10});
  run.deaf = false;
  run.leave(0, 2, {0, SIGKILL});
  run.leave(1, 4, {0, SIGKILL});
  cr_assert_eq(run.workers, 6u, "what was lent before is kept");
  cr_assert_eq(run.no_growth(), kTooLong);
  run_until(run, run.now + 3000);
  cr_assert_eq(run.starts, 4);
}

Test(growth_limit, a_program_that_is_ready_in_that_time_is_left_alone) {
  Growing run;
  run.hello(2, 4);
  run.leave(0, 2);
  run.leave(1, 4);
  cr_assert_eq(run.workers, 10u);
  run.signals.clear();
  run_until(run, run.since + 1000);
  cr_assert(run.signals.empty());
  cr_assert(run.releases.empty());
  cr_assert_eq(run.no_growth(), std::string());
}

Test(growth_limit, the_cause_of_a_failed_program_is_found_before_its_growth_ends) {
  Growing run(300);
  run.hello(2, 4);
  run.deaf = true;
  run.leave(0, 2);
  run.leave(1, 4);
  run.now = run.since + 19;
  run.handle(event::Exited{{0, 0}, {3, 0}});
  run.handle(event::Hello{{0, 0}, "host", 3000});
  run_until(run, run.since + 30);
  cr_assert(run.has_said("it is started again"));
  run.leave(2, 4, {0, SIGKILL});
  cr_assert_eq(run.releases, Jobs{10}, "its time is over all the same");
  run.handle(event::Exited{{0, 1}, {0, SIGKILL}});
  run.handle(event::Hello{{0, 1}, "host", 3001});
  run.leave(1, 4, {0, SIGKILL});
  cr_assert_eq(run.workers, 6u);
}

Test(growth_limit, gpus_that_cannot_join_go_back_without_a_pause) {
  GenerationMachine::Settings settings = limited();
  settings.sizes = {2, 16};
  Run run(settings);
  run.grow(9, 4);
  run.hello(1, 4);
  run_until(run, run.now + 20);
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert(run.has_said("the program can use 2 of 6 GPUs"));
  cr_assert_eq(run.no_growth(), std::string());
}

Test(growth_limit, a_live_switch_that_takes_longer_is_called_off_and_the_gpus_go_back) {
  LiveGrowing run;
  run_until(run, run.since + 19.9);
  cr_assert_eq(run.calls_off, 0);
  run_until(run, run.since + 20);
  cr_assert_eq(run.calls_off, 1);
  SwitchOutcome outcome;
  outcome.phase = SwitchPhase::prepare;
  outcome.code = swell::ErrorCode::cancelled;
  run.handle(event::Switched{1, outcome});
  cr_assert_neq(run.said.find(kTooLong), std::string::npos, "%s", run.said.c_str());
  run.handle(event::Exited{{1, 0}, {0, SIGKILL}, 1});
  cr_assert_eq(run.releases, Jobs{9});
  cr_assert_eq(run.machine.status().workers, 1);
  cr_assert_not(run.has_asked_to_leave(), "the old program trains on");
}

Test(growth_limit, programs_that_are_slow_to_stop_when_that_time_is_over_are_not_taken_for_silent) {
  LiveGrowing run;
  run.handle(event::Switching{1, SwitchPhase::quiesce});
  run_until(run, run.since + 20);
  SwitchOutcome outcome;
  outcome.phase = SwitchPhase::quiesce;
  outcome.code = swell::ErrorCode::cancelled;
  run.handle(event::Switched{1, outcome});
  cr_assert_eq(run.said.find("stopped answering"), std::string::npos, "%s", run.said.c_str());
}

Test(growth_limit, a_live_growth_may_take_longer_than_ten_minutes_where_its_owner_says_so) {
  live_run::Run run(true, true, 0, 0, 3000);
  run.lend();
  run_until(run, run.now + 2999);
  cr_assert_eq(run.calls_off, 0);
  run_until(run, run.now + 1);
  cr_assert_eq(run.calls_off, 1);
}

Test(growth_limit, a_live_growth_that_is_committed_in_that_time_stays) {
  LiveGrowing run;
  run.committed(1);
  run.handle(event::Exited{{0, 0}, {}, 0});
  run_until(run, run.since + 1000);
  cr_assert_eq(run.machine.status().workers, 2);
  cr_assert(run.releases.empty());
  cr_assert_not(run.has_asked_to_leave());
}

Test(growth_limit, gpus_with_which_the_first_program_begins_are_no_growth) {
  live_run::Run run(false, false, 2, 0, 20);
  run.lend();
  run_until(run, run.now + 100);
  cr_assert(run.releases.empty(), "the job's own workers come up late");
  run.basic_up();
  cr_assert_eq(run.machine.status().workers, 2);
  run_until(run, run.now + 100);
  cr_assert(run.releases.empty());
}
