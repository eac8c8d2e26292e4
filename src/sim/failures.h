// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "sim/random.h"
#include "sim/state.h"

namespace swell::sim {

/// Puts a running job back into the queue, from where it goes on from its last checkpoint.
void requeue(State& state, Job& job);

/// Random failures of nodes, each on its own; a node comes back after an hour on average.
class Failures {
 public:
  Failures(State& state, double per_node_and_day, std::uint64_t seed);
  /// Takes a node down. Jobs whose basic allocation is on it go back to the queue and continue from
  /// their last checkpoint; jobs that were lent GPUs there fall back to their basic plan and that
  /// checkpoint.
  void node_down(State& state, int node);
  void node_up(State& state, int node);

 private:
  double per_s_;
  std::vector<Random> random_;  ///< generator of each node
};

}  // namespace swell::sim
