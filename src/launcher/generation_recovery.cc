// SPDX-License-Identifier: GPL-2.0-or-later
// Part of the generation machine: restarts programs that fail.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <fmt/format.h>

#include "core/count_of.h"
#include "launcher/generation_machine.h"
#include "launcher/signals.h"

namespace swell::launcher {

using control::JobState;

/// Starts the program again after a failure, on the GPUs that the run has, if recover_s allows.
bool GenerationMachine::recovers(double now) {
  if (settings_.recover_s <= 0 || (last_recovery_ && now - *last_recovery_ < settings_.recover_s))
    return false;
  if (recovery_ && run_.trains_on_lent()) return false;  // it was never ready after the last one
  if (!run_.shims_are_there() || restarts_too_often(now)) return false;
  last_recovery_ = now;
  const Running& failed = *in<Running>();
  recovery_ = Recovery{now + settings_.recover_s, failed.has_begun || failed.awaits_runtime};
  out_.note("recovering", Json::object({{"status", code_}}));
  out_.say(fmt::format(
      "the program failed with {} over {}: it is started again on the GPUs that the job has; another failure within {:g} s counts",
      code_, count_of(run_.assignment.seats.size(), "worker"), settings_.recover_s));
  restart_killed(now, Purpose::retry, now + settings_.end_timeout_s);
  in<Restart>()->tells_of_bad_exit();  // the user has been told above
  return true;
}

/// Starts the program again once if it fails just after a resize that Swell asked for: a port that
/// another program took, or GPUs that are not free yet, are not the program's own errors.
bool GenerationMachine::retries(double now) {
  const Running& failed = *in<Running>();
  if (!failed.was_resized || failed.failure->exit.signal == SIGKILL ||
      now - failed.since > settings_.settle_s || !run_.shims_are_there() || restarts_too_often(now))
    return false;
  out_.note("retrying", Json::object({{"status", code_}}));
  out_.say(
      fmt::format("the program failed with {} within {:.0f} s of a resize: it is started again "
                  "once, from its last checkpoint",
                  code_, std::ceil(now - failed.since)));
  restart_killed(now, Purpose::retry, now);
  in<Restart>()->tells_of_bad_exit();  // the user has been told above
  return true;
}

/// Handles, in live mode, programs that could not begin together, and have left or had their time
/// to. This is not the end of training: they begin without the lent GPUs, or without a snapshot;
/// else the run ends.
void GenerationMachine::begin_otherwise(double now) {
  const std::string why = "the programs could not begin: " + in<Running>()->not_begun;
  if (run_.lent_took_part()) {
    fall_back(now, why);
  } else if (std::exchange(tries_snapshots_, false)) {
    out_.say("live mode: the snapshot is of no use; on from the last checkpoint");
    phase_ = Restart({run_.generation, run_.last_generation + 1, Purpose::give_back, now, now});
    kill_running(now);
  } else {
    code_ = std::max(code_, 1);
    return end(now, SIGTERM, now + settings_.end_timeout_s, true);
  }
  advance(now);
}

/// Counts a restart. Returns whether there were more of late than max_restarts.
bool GenerationMachine::restarts_too_often(double now) {
  restarts_.push_back(now);
  while (!restarts_.empty() && restarts_.front() < now - settings_.restart_window_s)
    restarts_.pop_front();
  return static_cast<int>(restarts_.size()) > settings_.max_restarts;
}

/// Judges a failure that no loss explains: lent GPUs are taken as its cause, or the program itself.
void GenerationMachine::decide(double now) {
  if (ends_for_signal(in<Running>()->failure->exit, now) || recovers(now)) return;
  const Running running = *in<Running>();
  if (!running.not_begun.empty()) return begin_otherwise(now);
  // A killed basic worker says nothing about the lent GPUs. Any other error may be the first sign
  // of a lent node that has failed, whose silence is noticed only a minute later.
  if (HeldCompanion* its = run_.companions.of_node(running.failure->worker.node);
      its != nullptr && !its->reclaimed)
    its->failed = true;
  if (running.failure->on_lent ||
      (run_.lent_took_part() && running.failure->exit.signal != SIGKILL))
    return fall_back(now, fmt::format("the program failed with {} over {}", code_,
                                      count_of(run_.assignment.seats.size(), "worker")));
  if (retries(now)) return;
  fail_for_good(now);
}

void GenerationMachine::fail_for_good(double now) {
  end(now, settings_.kill_on_bad_exit ? SIGTERM : 0,
      settings_.kill_on_bad_exit ? std::optional(now + settings_.end_timeout_s) : std::nullopt,
      true);
}

/// Ends the run, as under srun, if the program ended because of a signal that Slurm sent the job:
/// neither lent GPUs nor a resize caused it.
bool GenerationMachine::ends_for_signal(const Exit& exit, double now) {
  const int signal = signals_.cause_of(exit, now);
  if (signal == 0) return false;
  code_ = std::max(code_, exit.status());
  out_.say(fmt::format("the program ended with {} after Slurm sent it {}: the run ends", code_,
                       signal_name(signal)));
  fail_for_good(now);
  return true;
}

/// Returns whether the program is ready for a growth: it has begun with Swell's runtime, or, if it
/// does not use the runtime, all its workers handle the signal.
bool GenerationMachine::is_ready(bool needs_runtime) const {
  if (!is<Running>() || is_failing()) return false;
  if (is_live()) return true;
  return !needs_runtime && !run_.workers.running().empty() && run_.all_listen();
}

/// Returns whether the program that was started again is as ready as before it failed.
bool GenerationMachine::is_ready_again() const {
  return recovery_ && is_ready(recovery_->needs_runtime && settings_.live);
}

/// Notes that training goes on after a stop in which its programs were started anew.
void GenerationMachine::end_pause(double now) {
  if (!paused_since_) return;
  stopped_s_ = now - *std::exchange(paused_since_, std::nullopt);
  out_.note("resumed", Json::object({{"stopped_s", stopped_s_}}));
}

/// Returns until when lent GPUs wait for the program to be ready again; nullopt: they do not wait.
/// A failure before that is judged first.
std::optional<double> GenerationMachine::holds_until() const {
  if (!recovery_ || is_failing() || is<Ending>() || is<Over>() || !run_.trains_on_lent())
    return std::nullopt;
  return recovery_->by;
}

void GenerationMachine::give_up_recovery(double now) {
  const std::string lacks =
      recovery_->needs_runtime
          ? std::string("it has not begun with Swell's runtime")
          : fmt::format("not all its workers handle {}", signal_name(settings_.restart_signal));
  fall_back(now, fmt::format("the program has not recovered within {:g} s ({})",
                             settings_.recover_s, lacks));
}

}  // namespace swell::launcher
