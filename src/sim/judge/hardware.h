// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/models/model.h"
#include "sim/judge/software.h"

namespace swell::sim::judge {

/// One job's own truth: what it trains, with what, and how its GPUs differ from what their type
/// usually does.
struct Hardware {
  models::Model model;
  Software software;
  std::vector<double> slowness;  ///< by the cluster's GPU type: factor on the device's computation
  /// By node: a straggler's factor on computation; empty: there is none.
  std::vector<double> node_slowness;
  double of_type(int type) const {
    return slowness.empty() ? 1.0 : slowness[static_cast<std::size_t>(type)];
  }
  double of_node(int node) const {
    return node_slowness.empty() ? 1.0 : node_slowness[static_cast<std::size_t>(node)];
  }
};

}  // namespace swell::sim::judge
