// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/cluster/fabric.h"
#include "plugins/select/tight_sets.h"

namespace swell::select {

/// Groups of near nodes, in the plugin's form. Made from a Fabric, read under slurmctld's locks.
struct Blocks {
  std::vector<std::string> leaves;  ///< nodes of each leaf switch or block, as a host list
  LeafGroups groups;
  int nodes = 0;                   ///< number of nodes in all leaves
  std::vector<std::string> alike;  ///< host list of each kind of nodes (NodeKind)
  friend bool operator==(const Blocks&, const Blocks&) = default;
};

/// Kind of a node; nodes of two kinds are never mixed for the sake of nearness. Memory is part of
/// the kind because a job that takes all memory is promised the minimum that its first nodes have;
/// weight, because with it a site says which nodes are used first.
struct NodeKind {
  std::int64_t memory_mib = 0;
  std::uint32_t weight = 1;
  friend auto operator<=>(const NodeKind&, const NodeKind&) = default;
};

/// Makes the blocks of a fabric; null if it has fewer than two leaves, because there is nothing to
/// choose then. `kinds`: kind of each node of the fabric.
std::shared_ptr<const Blocks> blocks_from(const cluster::Fabric& fabric,
                                          const std::vector<NodeKind>& kinds);

}  // namespace swell::select
