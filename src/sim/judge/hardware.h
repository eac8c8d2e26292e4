// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/models/model.h"
#include "sim/judge/software.h"

namespace swell::sim::judge {

/// Hidden truth of one job: its model, its software, and how its GPUs differ from their type's
/// usual speed.
struct Hardware {
  models::Model model;
  Software software;
  std::vector<double> slowness;  ///< factor on computation time, by the cluster's GPU type
  /// Factor of stragglers on computation time, by node; empty: no stragglers.
  std::vector<double> node_slowness;
  double of_type(int type) const {
    return slowness.empty() ? 1.0 : slowness[static_cast<std::size_t>(type)];
  }
  double of_node(int node) const {
    return node_slowness.empty() ? 1.0 : node_slowness[static_cast<std::size_t>(node)];
  }
};

}  // namespace swell::sim::judge
