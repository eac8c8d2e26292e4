// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <vector>

#include "core/policy/view.h"

namespace swell::policy {

/// Resources that a pending job would take on one node.
struct Share {
  NodeIndex node = -1;
  Resources taken;
};

/// Returns the nodes and resources on which a pending job could start if each node had
/// `available` (indexed as view.nodes); nothing if it fits nowhere. Takes nodes in the order of
/// `preference` (a permutation of the partition's nodes; empty: as listed). Leaves out `closed`
/// nodes. Follows what Slurm's select plugin would accept, without cores and sockets: a demand
/// that fits here may still wait in Slurm, which costs an idle GPU; one that does not fit cannot
/// start there.
std::optional<std::vector<Share>> place(const PendingDemand& demand, const ClusterView& view,
                                        const std::vector<Resources>& available,
                                        const std::vector<NodeIndex>& preference = {},
                                        const NodeSet& closed = {});

}  // namespace swell::policy
