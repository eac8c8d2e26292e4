// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <string>
#include <vector>

#include "controller/elastic_job.h"
#include "controller/grant_book.h"
#include "slurm/records.h"

namespace swell::controller {

/// Keeps lent GPUs from using up the limits that Slurm sets their own users: a companion counts for
/// MaxJobs, GrpTRES and MaxSubmitJobs of its user's associations (and of the QOS of its partition)
/// like any job, and for GrpTRESMins with all minutes of its time limit, if
/// AccountingStorageEnforce=safe. If a job waits for such a limit, lent GPUs that count for the
/// limit are taken back. A part of a limit of submitted jobs always stays free.
class UserLimits {
 public:
  struct Reclaim {
    JobId job = 0, companion = 0;
    std::string reason;
  };
  /// Sets what JobLimits says of each job's user, and returns the companions to reclaim.
  std::vector<Reclaim> look(const slurm::Snapshot& snapshot, JobTable& jobs,
                            const std::vector<LiveGrant>& outstanding, double now);

 private:
  /// A job that waits for a limit.
  struct Waiter {
    double next = 0;        ///< earliest time of the next reclaim for it
    double bare_since = 0;  ///< since when no lent GPU counts for its limit; 0: one does
    int hopeless_with =
        -1;  ///< number of other running jobs with which it waited in vain; -1: not known
  };
  std::map<JobId, Waiter> waiters_;
};

}  // namespace swell::controller
