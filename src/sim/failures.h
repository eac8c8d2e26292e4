// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "sim/random.h"
#include "sim/state.h"

namespace swell::sim {

/// Nodes that fail, each on its own, and come back an hour later on average.
class Failures {
 public:
  Failures(State& state, double per_node_and_day, std::uint64_t seed);
  /// Jobs whose basic allocation is on the node go back to the queue and on from their last
  /// checkpoint; those that were lent GPUs there fall back to their basic plan and that checkpoint.
  void node_down(State& state, int node);
  void node_up(State& state, int node);

 private:
  double per_s_;
  std::vector<Random> random_;  ///< by node
};

}  // namespace swell::sim
