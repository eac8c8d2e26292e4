// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/live_switch.h"

#include <criterion/criterion.h>
#include <csignal>

#include "support/worker_nodes.h"

using namespace swell::launcher;

namespace {

/// Two basic workers (node 0) and a lent one (node 1, job 9) train in generation 4.
struct Fixture {
  RunState run{{worker_node(0, 5, "node1", 2)}};
  ActionList out{run};
  LivePace pace;

  Fixture() {
    run.companions.add(9, {worker_node(0, 0, "node2", 1)}).up = true;
    run.assignment = seat_workers(run.companions.usable(), 1, 3);
    run.generation = run.last_generation = 4;
    for (const Seat& seat : run.assignment.seats) run.workers[seat.worker].running = true;
  }
  /// Begins a switch to the first workers at 100; to be called off at 110, answered by 120.
  LiveSwitch to(int workers, Purpose purpose = Purpose::give_back) {
    LiveSwitch::Order order;
    order.what = {4, 5, purpose, 100, 110};
    order.answer_by = 120;
    order.next = seat_workers(run.companions.usable(), 1, workers);
    action::StartWorkers start{5, {}, false, true};
    for (const Seat& seat : order.next.seats)
      start.workers.emplace_back(seat.worker, Environment{});
    LiveSwitch made(std::move(order), {600, 30}, std::move(start), run, out, pace);
    out.take();
    return made;
  }
  /// Returns how many actions of a type there were since the last look.
  template <typename T>
  int count() {
    int found = 0;
    for (const action::Any& each : out.take()) found += std::holds_alternative<T>(each);
    return found;
  }
};

SwitchOutcome committed() {
  SwitchOutcome outcome;
  outcome.committed = true;
  return outcome;
}

}  // namespace

Test(live_switch, a_commit_makes_the_next_generation_train_and_gives_the_old_programs_time_to_end) {
  Fixture one;
  LiveSwitch change = one.to(2);
  one.run.companions.find(9)->reclaimed = true;
  one.run.companions.find(9)->leave_by = 112;
  change.enter(105, SwitchPhase::quiesce);
  cr_assert_eq(change.end(107, committed()), SwitchEnd::committed);
  cr_assert_eq(one.run.generation, 5);
  cr_assert_eq(one.run.workers.running().size(), 2u);
  cr_assert_eq(one.run.workers.others().at({4, {0, 0}}), 137);
  cr_assert_eq(one.run.workers.others().at({4, {1, 0}}), 112, "its GPUs must be free by then");
  cr_assert_not(one.run.workers.others().contains({5, {0, 0}}));
}

Test(live_switch, a_failed_switch_has_its_programs_killed_and_the_old_ones_train_on) {
  Fixture one;
  LiveSwitch change = one.to(2);
  cr_assert_eq(change.end(107, {}), SwitchEnd::trains_on);
  cr_assert_eq(one.run.generation, 4);
  cr_assert_eq(one.run.workers.running().size(), 3u);
  cr_assert_eq(one.run.workers.others().at({5, {0, 1}}), 137);
  cr_assert_eq(one.count<action::SignalWorkers>(), 1);
}

Test(live_switch, workers_that_were_let_go_do_not_train_and_the_others_have_more_time) {
  Fixture one;
  LiveSwitch change = one.to(2);
  cr_assert_not(change.was_let_go({1, 0}));
  cr_assert(change.let_go(108));
  cr_assert_not(change.let_go(108), "they were told");
  cr_assert(change.was_let_go({1, 0}));
  cr_assert_not(change.was_let_go({0, 0}));
  cr_assert_eq(one.run.workers.running().size(), 2u);
  cr_assert_eq(one.run.workers.others().at({4, {1, 0}}), 120);
  cr_assert_eq(change.late_at(), 708);
}

Test(live_switch,
     one_that_would_use_gpus_that_go_back_is_called_off_and_one_that_frees_them_is_not) {
  Fixture one;
  LiveSwitch frees = one.to(2);
  one.run.companions.find(9)->reclaimed = true;
  frees.make_way(115);
  cr_assert_not(frees.progress().called_off().has_value());
  cr_assert_eq(frees.late_at(), 110);
  one.run.companions.find(9)->reclaimed = false;
  LiveSwitch uses = one.to(3, Purpose::replan);
  one.run.companions.find(9)->reclaimed = true;
  uses.make_way(115);
  cr_assert_eq(uses.progress().called_off()->cause, CallOffCause::gpus_reclaimed);
  cr_assert(uses.progress().is_outdated());
  cr_assert_eq(uses.late_at(), 115);
}

Test(live_switch, an_event_calls_it_off_until_the_old_programs_are_being_stopped) {
  Fixture one;
  LiveSwitch early = one.to(2);
  early.defer(event::Lost{{0, 0}}, false, CallOffCause::worker_ended);
  cr_assert(early.progress().called_off().has_value());
  LiveSwitch late = one.to(2);
  cr_assert(late.enter(105, SwitchPhase::quiesce));
  late.defer(event::Lost{{0, 0}}, false, CallOffCause::worker_ended);
  cr_assert_not(late.progress().called_off().has_value());
  late.defer(event::Lost{{0, 0}}, true, CallOffCause::worker_ended);
  cr_assert(late.progress().called_off().has_value());
}

Test(live_switch, without_an_answer_it_is_called_off_and_then_judged_by_what_is_known) {
  Fixture one;
  LiveSwitch change = one.to(2);
  cr_assert_not(change.late("").has_value());
  cr_assert_eq(one.count<action::CallOffLive>(), 1);
  cr_assert_eq(change.late_at(), 120);
  cr_assert_not(change.late("")->committed);
  change.enter(119, SwitchPhase::commit);
  cr_assert(change.late("")->committed, "all shims were told to commit");
}

Test(live_switch, a_failure_that_a_signal_may_explain_is_judged_a_little_later) {
  SignalRecord signals({SIGUSR1, 30});
  SwitchFailures failures;
  cr_assert_not(failures.waits(signals, 100, 105, {}), "no program has failed");
  failures.add({0, SIGUSR2});
  cr_assert_not(failures.waits(signals, 100, 105, committed()));
  cr_assert(failures.waits(signals, 100, 105, {}));
  cr_assert_eq(failures.judged_at(), 105.5);
  cr_assert_not(failures.waits(signals, 100, 105.5, {}), "it has waited");
  cr_assert_eq(failures.signal(signals, 100, 105.5), 0);
  signals.sent(105.2, SIGUSR2);
  cr_assert_eq(failures.signal(signals, 100, 105.5), SIGUSR2);
}

Test(live_switch, a_signal_that_ends_programs_explains_a_failure_before_any_has_ended) {
  SignalRecord signals({SIGUSR1, 30});
  const SwitchFailures failures;
  signals.sent(99, SIGINT);
  cr_assert_eq(failures.signal(signals, 100, 105), 0, "before the switch");
  signals.sent(103, SIGINT);
  cr_assert_eq(failures.signal(signals, 100, 105), SIGINT);
}
