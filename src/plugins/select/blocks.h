// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/cluster/fabric.h"
#include "plugins/select/tight_sets.h"

namespace swell::select {

/// Which nodes stand together, as the plugin needs it. Made from a Fabric, read under slurmctld's locks.
struct Blocks {
  std::vector<std::string> leaves;  ///< the nodes of each leaf switch or block, as a host list
  LeafGroups groups;
  int nodes = 0;                    ///< how many nodes they have in all
  bool same_memory = false;         ///< every node has as much memory as every other
  friend bool operator==(const Blocks&, const Blocks&) = default;
};

/// Null where the fabric tells fewer than two leaves apart: then there is nothing to choose.
std::shared_ptr<const Blocks> blocks_from(const cluster::Fabric& fabric, bool same_memory);

}  // namespace swell::select
