// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "sim/state.h"

namespace swell::sim {

/// View of the simulated cluster for a policy: what Swell's controller would know, without the
/// truth. Node indexes are the cluster's; a node that is down has no resources.
policy::ClusterView make_view(const State& state, const std::vector<PendingJob>& queue);

/// Returns the pending jobs in the base scheduler's order: all where a policy replaces it, else as
/// many as Slurm's backfill looks at.
std::vector<PendingJob> queue_of(const State& state);

}  // namespace swell::sim
