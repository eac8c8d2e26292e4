// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/cluster/fabric.h"

namespace swell::policy {

/// Positions of a ClusterView's nodes in the fabric. Empty: no positions are known, and all nodes
/// are equally near. Made with the view; shares the fabric, which is immutable.
struct NodePositions {
  std::shared_ptr<const cluster::Fabric> fabric;
  std::vector<int> index;  ///< by NodeIndex; -1: not in the fabric

  /// Returns the nearness of every node to `nodes` (NodeIndexes); null if no positions are known.
  std::unique_ptr<cluster::Nearness> near(const std::vector<int>& nodes) const {
    if (!fabric || fabric->levels() == 0) return nullptr;
    std::vector<int> positions;
    for (const int node : nodes) positions.push_back(index[static_cast<std::size_t>(node)]);
    return std::make_unique<cluster::Nearness>(*fabric, positions);
  }
  int of(int node) const noexcept { return index[static_cast<std::size_t>(node)]; }
};

}  // namespace swell::policy
