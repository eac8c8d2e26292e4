// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

#include "controller/companion_identity.h"
#include "controller/elastic_job.h"
#include "controller/state_file.h"
#include "slurm/records.h"

namespace swell::controller {

/// A change found by comparing Slurm's records with the controller's table.
struct Change {
  enum class Kind {
    job_started,          ///< an elastic job runs that was not in the table
    job_ended,            ///< the job does not run any more; its companions are in `cancel`
    companion_started,    ///< Slurm's records show a companion that the table did not have
    companion_excessive,  ///< the companion holds more than its grant says; it is in
                          ///< `cancel`, and its departure has the reason
    companion_preempted,  ///< Slurm preempts the companion, which leaves from now on
    companion_ended,      ///< the companion was leaving, and has ended
    companion_lost,       ///< the companion ended although nobody reclaimed it
  };
  Kind kind;
  JobId job = 0;
  Companion companion;  ///< for changes of companions
};

struct Reconciled {
  std::vector<Change> changes;
  /// Companions to cancel, with the reason: their parent is gone or does not know them, or they
  /// hold too much.
  std::vector<std::pair<CompanionIdentity, std::string>> cancel;
  /// Resources of companions that only their parent's AdminComment names, for example after the
  /// loss of the state file, by the nonce of their grant. These become their grants.
  IssuedGrants adopted;
};

/// Brings the table in line with Slurm's records, which always win. A companion is trusted only
/// where it names its parent (its tag), belongs to the parent's user, and the parent's side names
/// it: the table, a grant in `issued`, or the parent's AdminComment, which must name this node and
/// this many GPUs. Reports of agents play no part in it. Changes nothing but the table.
Reconciled reconcile(const slurm::Snapshot& snapshot, JobTable& jobs, const IssuedGrants& issued,
                     double now);

}  // namespace swell::controller
