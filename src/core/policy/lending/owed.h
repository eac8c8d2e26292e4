// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <limits>
#include <vector>

#include "core/policy/lending/room.h"

/// What Swell owes to jobs that consented to fewer GPUs than they wanted: the rest of these, before
/// anybody is lent more than he wanted.
namespace swell::policy {

/// Factor on the gain by GPUs that are owed to a job, and on the loss of them: more than the gains
/// of any two jobs differ by.
inline constexpr double kOwed = 1e6;

/// In place of the start of a job that is owed nothing: served after every one that is.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// Start of the job where it has fewer than it wants; kNever otherwise.
inline double owed_since(const ElasticJobView& job, int total) {
  return total < job.wanted_gpus ? job.started_s : kNever;
}

/// Whether some of the companion's GPUs are among those that the job wants, when companions count
/// in the order in which it got them.
bool is_owed(const ElasticJobView& job, const CompanionView& companion);

/// Reclaims for `jobs`, in the order of their starts, as much as they are owed beyond what is idle
/// or leaves already: from the job that loses least by it, and nothing that is owed to that one.
/// Nothing where it would not do for a size that the job may have. It is lent once it is idle.
/// REQUIRES: Room::close() has not run.
void reclaim_for_owed(Room& room, const std::vector<const ElasticJobView*>& jobs,
                      const Room::Loss& loss);

}  // namespace swell::policy
