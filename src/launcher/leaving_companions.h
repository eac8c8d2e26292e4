// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "launcher/process_runner.h"
#include "launcher/rank_assignment.h"

namespace swell::launcher {

/// Companions that go back: each is cancelled, at once or after its step has had time to end by
/// itself. `now`: seconds of one clock.
class LeavingCompanions {
 public:
  /// Called once a companion has been cancelled.
  using Released = std::function<void(JobId)>;
  /// Returns the name of a companion's offer.
  using NameOf = std::function<std::string(JobId)>;
  LeavingCompanions(ProcessRunner& runner, NameOf name_of, Released released)
      : runner_(runner), name_of_(std::move(name_of)), released_(std::move(released)) {}

  /// Gives the companion back; if its step runs, the step has kStepEnd_s to end by itself.
  void release(JobId companion, bool step_runs, double now);
  /// Cancels the companion now, since its last srun has ended.
  void step_ended(JobId job);
  bool contains(JobId job) const { return leaving_.contains(job); }
  /// Handles a process that has ended. Returns false if another part started it.
  bool take(const ProcessRunner::Ended& ended);
  /// Returns when cancel_late() is due; nullopt: no companion waits.
  std::optional<double> deadline() const;
  void cancel_late(double now);
  /// Kills every scancel, at the end of the run.
  void kill() const;

  static constexpr double kStepEnd_s = 1;  ///< a step that ends by itself prints fewer errors

 private:
  struct Leaving {
    double cancel_by = 0;  ///< its step may end by itself until then
    bool cancelling = false;
  };
  void cancel(JobId companion);

  ProcessRunner& runner_;
  NameOf name_of_;
  Released released_;
  std::map<JobId, Leaving> leaving_;
  std::map<pid_t, JobId> cancels_;
};

}  // namespace swell::launcher
