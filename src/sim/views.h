// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "sim/state.h"

namespace swell::sim {

/// What a policy sees of the simulated cluster: what Swell's controller would know, nothing of the
/// truth. Node indices are the cluster's; a node that is down has nothing.
policy::ClusterView make_view(const State& state, const std::vector<PendingJob>& queue);

/// The pending jobs in the base scheduler's order.
std::vector<PendingJob> queue_of(const State& state);

}  // namespace swell::sim
