// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>

#include "core/result.h"
#include "slurm/records.h"

namespace swell::slurm {

/// Swell's requests to slurmctld. LiveSlurm implements them; tests of the controller have their own
/// implementations. Used by one thread at a time.
class SlurmApi {
 public:
  virtual ~SlurmApi() = default;

  /// Loads the queue and the nodes. Returns nothing if neither has changed since the last call that
  /// returned a snapshot.
  virtual Result<std::optional<Snapshot>> load() = 0;
  /// Makes the next load() return a snapshot whether or not anything has changed.
  virtual void forget() = 0;
  /// Loads one job in slurmctld's present state, independently of the last snapshot. Returns
  /// nothing if it is not in the queue.
  virtual Result<std::optional<JobRecord>> load_job(JobId job) = 0;
  /// Ends a job at once. Returns no error if it has ended already.
  virtual Result<void> cancel(JobId job) = 0;
  /// Writes a line to the standard error of a job's script, or to the program that waits for its
  /// step.
  virtual Result<void> tell(JobId job, const std::string& line) = 0;
  /// Returns false if slurmctld cannot accept it yet, for a reason that passes by itself; this
  /// answer may take 5 s.
  virtual Result<bool> set_admin_comment(JobId job, const std::string& text) = 0;
  /// Returns whether set_gpu_type() works with this version of Slurm.
  virtual bool changes_gpu_types() const noexcept = 0;
  /// Has a pending job request GPUs of `type`, leaves its other requests as they are, and writes
  /// its AdminComment, in one change. Returns false as set_admin_comment() does, and an error if
  /// the job is not pending any more, or requests GPUs in a form without a type. `at_once`: it may
  /// start from now on, even if a requeue has set a later time.
  virtual Result<bool> set_gpu_type(JobId job, const std::string& type,
                                    const std::string& admin_comment, bool at_once = false) = 0;
  /// Ends a batch job and puts it into the queue again. Also works for a job that has just ended by
  /// itself.
  virtual Result<void> requeue(JobId job) = 0;
};

}  // namespace swell::slurm
