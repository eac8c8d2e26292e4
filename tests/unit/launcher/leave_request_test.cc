// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/leave_request.h"

#include <criterion/criterion.h>
#include <csignal>

#include "support/worker_nodes.h"

using namespace swell::launcher;

namespace {

/// Two workers train in generation 4.
struct Fixture {
  RunState run{{worker_node(0, 5, "node1", 2)}};
  ActionList out{run};
  LeaveRequest request{{SIGUSR1, 4}, run, out};

  Fixture() {
    run.generation = 4;
    run.assignment = seat_workers(run.companions.basic(), 1, 2);
    for (const Seat& seat : run.assignment.seats) run.workers[seat.worker].running = true;
  }
  /// Returns the only action of a type; nullopt: there was another one.
  template <typename T>
  std::optional<T> only() {
    const auto actions = out.take();
    if (actions.size() != 1 || !std::holds_alternative<T>(actions[0])) return std::nullopt;
    return std::get<T>(actions[0]);
  }
};

}  // namespace

Test(leave_request, programs_that_handle_the_signal_or_do_not_train_live_are_sent_it) {
  Fixture one;
  one.request.ask(100, 30, false);
  cr_assert_eq(one.only<action::SignalWorkers>()->signal, SIGUSR1);
  one.run.workers[{0, 1}].listens = 4;
  one.request.ask(100, 30, true);
  cr_assert_eq(one.only<action::SignalWorkers>()->workers.size(), 2u);
  cr_assert_not(one.request.is_pending());
}

Test(leave_request, a_single_program_needs_no_step_to_agree_on) {
  Fixture one;
  one.run.workers[{0, 1}].running = false;
  one.request.ask(100, 30, true);
  cr_assert_eq(one.only<action::SignalWorkers>()->workers.size(), 1u);
}

Test(leave_request, live_programs_agree_in_a_quarter_of_their_time_and_are_asked_once) {
  Fixture one;
  one.request.ask(100, 8, true);
  cr_assert_eq(one.only<action::StopLive>()->within_s, 2);
  cr_assert_eq(one.request.deadline(), 104);
  one.request.ask(101, 8, true);
  cr_assert(one.out.take().empty());
}

Test(leave_request, those_that_were_not_told_a_step_are_sent_the_signal) {
  Fixture one;
  one.request.ask(100, 30, true);
  one.out.take();
  cr_assert_not(one.request.answered(3, 7, {}), "of another generation");
  cr_assert(one.request.is_pending());
  one.run.workers[{0, 1}].running = false;
  cr_assert(one.request.answered(4, 7, {{0, 0}, {0, 1}}));
  cr_assert_not(one.request.is_pending());
  const auto actions = one.out.take();
  cr_assert_eq(actions.size(), 2u, "a note and the signal");
  cr_assert(std::get<action::SignalWorkers>(actions[1]).workers == std::vector<WorkerId>({{0, 0}}));
}

Test(leave_request, without_an_answer_each_is_asked_by_itself) {
  Fixture one;
  one.request.ask(100, 30, true);
  one.out.take();
  one.request.give_up();
  const auto actions = one.out.take();
  cr_assert_eq(actions.size(), 3u);
  cr_assert(std::holds_alternative<action::CallOffLive>(actions[0]));
  cr_assert_eq(std::get<action::SignalWorkers>(actions[2]).workers.size(), 2u);
  cr_assert_not(one.request.is_pending());
}
