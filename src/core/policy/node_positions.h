// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/cluster/fabric.h"

namespace swell::policy {

/// Where the nodes of a ClusterView are: which node of the fabric each is. Empty: nothing is known,
/// and all nodes are equally near. Made with the view; shares the fabric, which is immutable.
struct NodePositions {
  std::shared_ptr<const cluster::Fabric> fabric;
  std::vector<int> index;  ///< by NodeIndex; -1: not in the fabric

  /// The nearness of every node to these, which are NodeIndexes; nothing where no places are known.
  std::unique_ptr<cluster::Nearness> near(const std::vector<int>& nodes) const {
    if (!fabric || fabric->levels() == 0) return nullptr;
    std::vector<int> places;
    for (const int node : nodes) places.push_back(index[static_cast<std::size_t>(node)]);
    return std::make_unique<cluster::Nearness>(*fabric, places);
  }
  int of(int node) const noexcept { return index[static_cast<std::size_t>(node)]; }
};

}  // namespace swell::policy
