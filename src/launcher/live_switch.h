// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/action_list.h"
#include "launcher/deferred_events.h"
#include "launcher/live_pace.h"
#include "launcher/reconfiguration.h"
#include "launcher/run_state.h"
#include "launcher/running.h"
#include "launcher/signal_record.h"

namespace swell::launcher {

/// Programs that ended with an error during a switch, and whether a signal was the reason.
class SwitchFailures {
 public:
  void add(Exit exit) { exits_.push_back(exit); }
  /// Returns the signal that Slurm sent the job since `since`, and for which the switch failed; 0:
  /// none.
  int signal(const SignalRecord& signals, double since, double now) const;
  /// Keeps the outcome of a failed switch if a program may have died of a signal: the shims tell a
  /// little later which one Slurm sent. Returns false if the outcome can be judged now.
  bool waits(const SignalRecord& signals, double since, double now, const SwitchOutcome& outcome);
  /// Returns when the outcome that is kept is judged at the latest; none: none is kept.
  std::optional<double> judged_at() const { return judged_at_; }
  const SwitchOutcome& outcome() const noexcept { return outcome_; }

 private:
  std::vector<Exit> exits_;  ///< of either generation's programs
  std::optional<double> judged_at_;
  SwitchOutcome outcome_;
};

/// The live strategy: the programs of the next generation start beside those of this one, take
/// their state over, and train once the coordinator has committed that. Until then the old ones
/// train on.
class LiveSwitch {
 public:
  struct Order {
    Reconfiguration what;
    double answer_by = 0;          ///< when to stop waiting for an answer
    bool is_growth_limit = false;  ///< the deadline is what the owner allows for a growth
    Running before;                ///< the phase to return to after a failure
    RankAssignment next;
  };
  struct Settings {
    double switch_timeout_s = 600;  ///< for the other workers, once the leaving ones were let go
    double end_timeout_s = 30;      ///< for programs to end
  };
  /// Starts the next programs by `start`, and has the state moved to them. `run`, `out` and `pace`
  /// must outlive the switch.
  LiveSwitch(Order order, Settings settings, action::StartWorkers start, RunState& run,
             ActionList& out, LivePace& pace);

  const Order& order() const noexcept { return order_; }
  const SwitchProgress& progress() const noexcept { return progress_; }
  SwitchFailures& failures() noexcept { return failures_; }
  const SwitchFailures& failures() const noexcept { return failures_; }

  /// Notes that the coordinator has entered a phase. Returns whether the old programs are being
  /// stopped from now on.
  bool enter(double now, SwitchPhase phase);
  /// Lets the leaving workers go, since the others have all state that only these had: their GPUs
  /// go back at once, and the rest of the switch gets new deadlines. Their events may have come
  /// before this call. Returns false if they were let go before.
  bool let_go(double now);
  /// Returns whether the worker leaves with the switch, and was told so.
  bool was_let_go(WorkerId worker) const;
  void call_off(CallOffCause cause, const std::string& why);
  /// Has companions given back by `by`: a switch that would use them is called off; one that frees
  /// them goes on.
  void make_way(double by);
  /// Keeps an event for the end of the switch. An event that `spoils` the switch calls it off.
  /// Until the old programs are being stopped, every event calls it off; after that the shims find
  /// out by themselves whether the switch can go on.
  void defer(DeferredEvent event, bool spoils, CallOffCause cause);
  DeferredEvents& deferred() noexcept { return deferred_; }
  /// Adds the workers of the next generation that are not among `workers`.
  void add_next(std::vector<WorkerId>& workers) const;

  /// Returns when late() is due.
  double late_at() const noexcept;
  /// Calls the switch off. If it was called off before, returns its outcome and stops waiting for
  /// it: the coordinator has told all shims to commit, or never will.
  std::optional<SwitchOutcome> late(const std::string& growth_limit);
  /// Ends the switch: the next generation trains, or its programs are killed. Returns what is left.
  SwitchEnd end(double now, const SwitchOutcome& outcome);

 private:
  void commit(double now);
  void kill_next(double now);

  Order order_;
  Settings settings_;
  RunState* run_;
  ActionList* out_;
  LivePace* pace_;
  bool to_running_ = false;  ///< all workers of the next generation train already
  SwitchProgress progress_;
  SwitchFailures failures_;
  DeferredEvents deferred_;
};

}  // namespace swell::launcher
