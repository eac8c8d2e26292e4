// SPDX-License-Identifier: GPL-2.0-or-later
// The generation machine in live mode: programs are asked to leave, all at one step.
#include <csignal>
#include <vector>

#include "launcher/live_run.h"

using namespace live_run;

namespace {

const Workers kBoth{{0, 0}, {1, 0}};

/// Two workers, one of them lent, whose GPU goes back within 32 s; a switch to the other has
/// failed.
struct Leaving : Run {
  explicit Leaving(bool listens = false) {
    grown();
    if (listens) handle(event::Listens{{1, 0}, 1});
    shrink(32);  // 30 with the margin
    aborted(2);
  }
  void stopped(std::uint64_t step, const Workers& untold, int generation = 1) {
    handle(event::Stopped{generation, step, untold});
  }
  std::vector<Workers> signalled() const {
    std::vector<Workers> found;
    for (const auto& each : signals)
      if (each.signal == SIGUSR1) found.push_back(each.workers);
    return found;
  }
};

}  // namespace

Test(live_leave, leaving_workers_leave_at_one_step_and_the_next_generation_begins) {
  Leaving run;
  cr_assert_eq(run.stops.size(), 1u);
  cr_assert_eq(run.stops[0].generation, 1);
  cr_assert(run.stops[0].workers == kBoth);
  run.stopped(70, {});
  cr_assert_not(run.has_signalled(SIGUSR1));
  for (const int node : {0, 1}) run.handle(event::Exited{{node, 0}, {}, 1});
  for (const int node : {0}) run.handle(event::Exited{{node, 0}, {}, 2});
  run.handle(event::Hello{{0, 0}, "host", 3});
  cr_assert_eq(run.starts.back().workers.size(), 1u);
  cr_assert_not(run.code.has_value());
}

Test(live_leave, to_agree_takes_a_part_of_the_time_that_is_there) {
  Leaving run;
  cr_assert_float_eq(run.stops[0].within_s, 4, 1e-9, "of 30 s");
  Run hurried;
  hurried.grown();
  hurried.shrink(4);  // 2 with the margin
  hurried.aborted(2);
  cr_assert_float_eq(hurried.stops[0].within_s, 0.5, 1e-9);
}

Test(live_leave, a_worker_that_was_not_told_is_asked_by_itself) {
  Leaving run;
  run.stopped(70, {{1, 0}});
  cr_assert(run.signalled() == (std::vector<Workers>{Workers{{1, 0}}}));
}

Test(live_leave, without_an_answer_each_is_asked_by_itself_and_the_deadline_stays) {
  Leaving run;
  const double begun = run.now;
  cr_assert_float_eq(run.machine.deadline().value(), begun + 8, 1e-9);
  run.tick(begun + 8);
  cr_assert(run.signalled() == std::vector<Workers>{kBoth});
  cr_assert_eq(run.calls_off, 1);
  run.stopped(70, kBoth);
  cr_assert_eq(run.signalled().size(), 1u, "the late answer changes nothing");
  run.tick(begun + 30);
  cr_assert(run.has_signalled(SIGKILL));
}

Test(live_leave, a_program_that_handles_the_signal_gets_that_and_agrees_by_itself) {
  Leaving run(true);
  cr_assert(run.stops.empty());
  cr_assert(run.signalled() == std::vector<Workers>{kBoth});
}

Test(live_leave, one_worker_alone_has_nobody_to_agree_with) {
  Run run;
  run.handle(event::Signalled{SIGUSR1});
  cr_assert(run.stops.empty() && run.has_signalled(SIGUSR1));
}

Test(live_leave, the_restart_signal_of_the_user_is_a_stop_at_one_step_too) {
  Run run;
  run.grown();
  run.handle(event::Signalled{SIGUSR1});
  cr_assert_eq(run.stops.size(), 1u);
  cr_assert_not(run.has_signalled(SIGUSR1));
  // GPUs that are asked for meanwhile go back when those have left: nothing is switched for it.
  run.shrink(32);
  run.handle(event::Signalled{SIGUSR1});
  cr_assert_eq(run.stops.size(), 1u, "it is under way");
  run.handle(event::Stopped{1, 70, {}});
  cr_assert_eq(run.orders.size(), 1u);
  run.handle(event::Signalled{SIGUSR2});
  cr_assert(run.has_signalled(SIGUSR2));
  for (const int node : {0, 1}) run.handle(event::Exited{{node, 0}, {}, 1});
  run.handle(event::Hello{{0, 0}, "host", 3});
  cr_assert_not(run.code.has_value());
  cr_assert_eq(run.starts.back().workers.size(), 1u, "it trains on from its checkpoint");
}

Test(live_leave, killed_or_ended_workers_are_not_asked_any_more) {
  Leaving run;
  run.handle(event::Signalled{SIGTERM});
  cr_assert(run.has_signalled(SIGTERM));
  cr_assert_geq(run.calls_off, 1);
  run.stopped(0, kBoth);
  cr_assert_not(run.has_signalled(SIGUSR1));
}
