// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <optional>

#include "launcher/process_runner.h"
#include "launcher/rank_assignment.h"

namespace swell::launcher {

/// Follows the job's time limit, which may be changed at any time: asks Slurm again and again, more
/// often as the end comes near. `now`: seconds of one clock.
class TimeLimitWatch {
 public:
  /// Called with the time of the job's end, in seconds of the same clock, as far as it is known;
  /// nullopt: it has no limit.
  using Ends = std::function<void(std::optional<double>)>;
  /// `before_end_s`: how long before its end the job wants to be told; 0: never, and nothing is
  /// asked.
  TimeLimitWatch(JobId job, double before_end_s, ProcessRunner& runner, Ends ends)
      : job_(job), before_end_s_(before_end_s), runner_(runner), ends_(std::move(ends)) {}

  /// Returns when look() is due; nullopt: never.
  std::optional<double> deadline() const;
  void look(double now);
  /// Handles a process that has ended. Returns false if another part started it.
  bool take(const ProcessRunner::Ended& ended, double now);
  /// Kills the command that asks Slurm, at the end of the run.
  void kill() const;

 private:
  const JobId job_;
  const double before_end_s_;
  ProcessRunner& runner_;
  Ends ends_;
  pid_t pid_ = 0;
  double next_ = 0;
};

}  // namespace swell::launcher
