// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <string>
#include <vector>

#include "controller/elastic_job.h"
#include "slurm/records.h"

namespace swell::controller {

/// What became known by comparing Slurm's records with the controller's table.
struct Change {
  enum class Kind {
    job_started,         ///< an elastic job runs that was not in the table
    job_ended,           ///< it is not running any more; its companions are in `cancel`
    companion_adopted,   ///< a companion shows that the table did not have (after a restart, mostly)
    companion_started,   ///< a companion that the agent told of shows
    companion_preempted, ///< Slurm preempts it; it is leaving from now on
    companion_ended,     ///< it was leaving and is gone
    companion_lost,      ///< it is gone though nobody took it back
  };
  Kind kind;
  JobId job = 0;
  Companion companion;   ///< for changes of companions
};

struct Reconciled {
  std::vector<Change> changes;
  /// Companions to cancel, with the reason: their parent is gone or does not know them.
  std::vector<std::pair<JobId, std::string>> cancel;
};

/// Brings the table in line with Slurm's records, which always win. A companion is trusted only where
/// it names its parent (its tag) and the parent's side names it: the table, the parent's AdminComment,
/// or a grant in `issued` (nonce -> parent). Pure but for the table.
Reconciled reconcile(const slurm::Snapshot& snapshot, JobTable& jobs, const std::map<std::string, JobId>& issued,
                     double now);

}  // namespace swell::controller
