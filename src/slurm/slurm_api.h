// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>

#include "core/result.h"
#include "slurm/records.h"

namespace swell::slurm {

/// Swell's requests to slurmctld. LiveSlurm makes them; tests of the controller have their own.
/// Used by one thread at a time.
class SlurmApi {
 public:
  virtual ~SlurmApi() = default;

  /// Loads the queue and the nodes; gives nothing where neither changed since the last call that
  /// gave a snapshot.
  virtual Result<std::optional<Snapshot>> load() = 0;
  /// Makes the next load() give a snapshot whether or not anything changed.
  virtual void forget() = 0;
  /// Loads one job as slurmctld has it now, whatever the last snapshot said; gives nothing where it
  /// is not in the queue.
  virtual Result<std::optional<JobRecord>> load_job(JobId job) = 0;
  /// Ends a job at once. Not an error where it has ended already.
  virtual Result<void> cancel(JobId job) = 0;
  /// Writes a line to the standard error of a job's script, or to whoever waits for its step.
  virtual Result<void> tell(JobId job, const std::string& line) = 0;
  /// False: slurmctld cannot take it yet, for a reason that passes by itself; it may have taken 5 s
  /// to say so.
  virtual Result<bool> set_admin_comment(JobId job, const std::string& text) = 0;
};

}  // namespace swell::slurm
