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

/// Which nodes stand together, as the plugin needs it. Made from a Fabric, read under slurmctld's
/// locks.
struct Blocks {
  std::vector<std::string> leaves;  ///< the nodes of each leaf switch or block, as a host list
  LeafGroups groups;
  int nodes = 0;                   ///< how many nodes they have in all
  std::vector<std::string> alike;  ///< nodes of one kind, a host list each
  friend bool operator==(const Blocks&, const Blocks&) = default;
};

/// What tells nodes apart that are never mixed for nearness: memory (a job that takes all of it is
/// promised the least that its first nodes have) and weight (by which a site says which nodes are
/// to be taken first).
struct NodeKind {
  std::int64_t memory_mib = 0;
  std::uint32_t weight = 1;
  friend auto operator<=>(const NodeKind&, const NodeKind&) = default;
};

/// Null where the fabric tells fewer than two leaves apart: then there is nothing to choose.
/// `kinds`: of each node of the fabric.
std::shared_ptr<const Blocks> blocks_from(const cluster::Fabric& fabric,
                                          const std::vector<NodeKind>& kinds);

}  // namespace swell::select
