// SPDX-License-Identifier: GPL-2.0-or-later
// The generation machine in live mode: signals from the user while a switch is under way.
#include <csignal>

#include "launcher/live_run.h"
#include "launcher/signals.h"
#include "runtime/wire/messages.h"

using namespace live_run;

namespace {

/// A switch under way: of a growth to node 1, or of a return of its GPUs.
struct Switch {
  explicit Switch(bool grows) : old(grows ? 0 : 1), next(old + 1) {
    if (grows) {
      run.lend();
    } else {
      run.grown();
      run.shrink(30);
    }
    old_workers = grows ? Workers{{0, 0}} : Workers{{0, 0}, {1, 0}};
    next_workers = grows ? Workers{{0, 0}, {1, 0}} : Workers{{0, 0}};
    run.signals.clear();
  }
  /// `scancel --signal`, which reaches the job's own programs by itself.
  void send(int signal) { run.handle(event::Notice{{0, 0}, signal}); }
  void ends(int generation, Exit exit) {
    for (const WorkerId worker : generation == old ? old_workers : next_workers)
      run.handle(event::Exited{worker, exit, generation});
  }
  bool reached(WorkerId worker, int signal) const {
    return std::any_of(run.signals.begin(), run.signals.end(), [&](const auto& each) {
      return each.signal == signal && std::count(each.workers.begin(), each.workers.end(), worker);
    });
  }

  Run run;
  int old, next;
  Workers old_workers, next_workers;
};

}  // namespace

Test(live_signal, programs_that_die_of_it_during_a_switch_end_the_run) {
  enum class Order { told_first, next_first, old_first };
  for (const bool grows : {true, false})
    for (const int signal : {SIGINT, SIGHUP, SIGQUIT, SIGUSR2})
      for (const Order order : {Order::told_first, Order::next_first, Order::old_first})
        for (const bool in_move : {false, true}) {
          Switch one(grows);
          if (in_move)
            one.run.event([&] {
              one.run.machine.handle(one.run.now, event::Switching{one.next, SwitchPhase::quiesce});
            });
          if (order == Order::told_first) one.send(signal);
          if (order == Order::old_first) one.ends(one.old, {0, signal});
          one.ends(one.next, {0, signal});
          if (order != Order::told_first) one.send(signal);
          if (order != Order::old_first) one.ends(one.old, {0, signal});
          if (in_move) one.run.aborted(one.next, false, "a program has ended");
          else one.run.cancelled(one.next);
          one.run.tick(one.run.now + 3);
          const char* which = grows ? "growth" : "return";
          cr_assert_eq(one.run.code.value_or(-1), 128 + signal, "%s, signal %d: %d", which, signal,
                       one.run.code.value_or(-1));
          cr_assert_neq(one.run.said.find("after Slurm sent it " + signal_name(signal)),
                        std::string::npos, "%s", one.run.said.c_str());
          cr_assert_eq(one.run.releases, std::vector<JobId>{kCompanion});
          cr_assert_eq(one.run.starts.size(), grows ? 2u : 3u, "nothing is started again");
          cr_assert_eq(one.run.machine.status().switched.find("a worker has ended"),
                       std::string::npos);
        }
}

Test(live_signal, lent_programs_of_either_generation_are_sent_it) {
  for (const bool grows : {true, false}) {
    Switch one(grows);
    one.send(SIGUSR2);
    cr_assert(one.reached({1, 0}, SIGUSR2));
    cr_assert_not(one.reached({0, 0}, SIGUSR2), "Slurm has");
    one.run.event([&] { one.run.machine.handle(one.run.now, event::Signalled{SIGUSR2}); });
    cr_assert(one.reached({0, 0}, SIGUSR2));
  }
}

Test(live_signal, a_growth_whose_new_programs_die_of_it_is_tried_again) {
  Switch one(true);
  one.send(SIGUSR2);
  one.ends(one.next, {0, SIGUSR2});
  cr_assert_eq(one.run.calls_off, 1);
  one.run.cancelled(one.next);
  cr_assert_eq(one.run.machine.status().no_growth, std::string());
  cr_assert_neq(one.run.machine.status().switched.find("Slurm sent the job USR2"),
                std::string::npos);
  cr_assert_eq(one.run.orders.size(), 1u, "its programs may be ending");
  one.run.tick(*one.run.machine.deadline());
  cr_assert(one.run.releases.empty());
  cr_assert_eq(one.run.orders.size(), 2u);
  cr_assert_not(one.run.code.has_value());
}

Test(live_signal, word_of_it_may_come_when_the_switch_has_ended) {
  for (const bool is_sent : {true, false})
    for (const int signal : {SIGUSR2, SIGINT}) {
      Switch one(true);
      one.ends(one.next, {0, signal});
      one.run.cancelled(one.next);
      cr_assert_leq(*one.run.machine.deadline(), one.run.now + 1);
      if (is_sent) one.send(signal);
      one.run.tick(one.run.now + 0.5);
      cr_assert_eq(one.run.machine.status().no_growth.empty(), is_sent);
      cr_assert_eq(one.run.releases.empty(), is_sent, "its program has a fault of its own");
      one.run.tick(one.run.now + 3);
      cr_assert_eq(one.run.orders.size(), is_sent ? 2u : 1u);
    }
}

Test(live_signal, a_return_whose_new_programs_die_of_it_is_tried_again) {
  for (const bool is_silent : {false, true}) {
    Switch one(false);
    one.send(SIGUSR2);
    one.ends(one.next, {0, SIGUSR2});
    one.run.cancelled(one.next, is_silent);
    cr_assert_eq(one.run.orders.size(), 2u);
    cr_assert_not(one.run.has_asked_to_leave());
    one.run.tick(one.run.now + 3);
    cr_assert_eq(one.run.orders.size(), is_silent ? 2u : 3u);
    cr_assert_eq(one.run.has_asked_to_leave(), is_silent, "GPUs go back in time");
  }
}

Test(live_signal, a_program_that_saves_and_ends_well_for_it_is_not_started_again) {
  for (const bool grows : {true, false}) {
    Switch one(grows);
    one.send(SIGINT);
    one.ends(one.next, {0, SIGINT});
    one.run.cancelled(one.next);
    cr_assert_not(one.run.has_asked_to_leave());
    one.ends(one.old, {0, 0});
    cr_assert_eq(one.run.code.value_or(-1), 0);
    cr_assert_eq(one.run.releases, std::vector<JobId>{kCompanion});
  }
}
