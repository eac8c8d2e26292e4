// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "launcher/process_runner.h"
#include "launcher/rank_assignment.h"

namespace swell::launcher {

/// Companions that go back: each is cancelled, at once or when its step has had the time to end by
/// itself. `now`: seconds of one clock.
class LeavingCompanions {
 public:
  /// Called once a companion has been cancelled.
  using Released = std::function<void(JobId)>;
  /// Returns the name of a companion's offer.
  using NameOf = std::function<std::string(JobId)>;
  LeavingCompanions(ProcessRunner& runner, NameOf name_of, Released released)
      : runner_(runner), name_of_(std::move(name_of)), released_(std::move(released)) {}

  /// The companion goes back; a step of its own that still runs may end by itself.
  void release(JobId companion, bool step_runs, double now);
  /// The last srun of the job has ended: there is nothing to wait for any more.
  void step_ended(JobId job);
  bool contains(JobId job) const { return leaving_.contains(job); }
  /// Goes on after a process that has ended; false: it is another part's.
  bool take(const ProcessRunner::Ended& ended);
  /// The time of the next cancel_late(); nothing: none waits.
  std::optional<double> deadline() const;
  void cancel_late(double now);
  /// Kills every scancel, at the end of the run.
  void kill() const;

  static constexpr double kStepEnd_s = 1;  ///< an orderly end is quieter than a cancelled step

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
