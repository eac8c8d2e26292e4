// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/cluster/cluster.h"
#include "core/plan/layout.h"
#include "core/schedule/schedule.h"
#include "sim/judge/hardware.h"

namespace swell::sim::judge {

/// One executed operation, for tests and drawings.
struct Operation {
  enum class Kind { forward, backward, weights, send, gradients, optimizer } kind;
  int stage = 0;
  int group = 0;
  int micro_batch = 0;
  double begin_s = 0;
  double end_s = 0;
  int chunk = 0;
};

/// How a plan runs: the order of its passes, and the layers of each chunk.
struct Pipeline {
  schedule::Schedule schedule;
  /// By stage, then by chunk; those of a stage sum to its layers. A chunk may have none.
  std::vector<std::vector<int>> layers;
  /// 1F1B with one chunk a stage: a plan to which nothing else is said.
  static Pipeline one_chunk(const plan::Layout& layout);
  /// Gives each chunk of a stage the same number of layers, the first ones one more where that does
  /// not divide.
  static Pipeline even_chunks(const plan::Layout& layout, schedule::Schedule schedule);
  /// Whether the schedule is valid and both it and the chunks are those of `layout`.
  Result<void> check(const plan::Layout& layout) const;
};

/// Result of one iteration.
struct Iteration {
  double seconds = 0;
  double idle_share = 0;  ///< share of all GPUs' time until the end
  std::vector<Operation> operations;
};

/// Executes one training iteration event by event: each group's passes of each micro-batch in the
/// order of the schedule; activations and gradients sent to each group of the stage with the next
/// chunk that needs some of the samples; gradient rings; the optimizer. Transfers that use one
/// node's network at the same time share it. compute.h and collectives.h give the time of a pass,
/// an all-reduce or a message by curves fitted to measurements. Shares nothing with the performance
/// model but the cluster's description, not schedule::evaluate() either: there is no warm-up or
/// steady phase, no overlap exponent, no logarithm of a bandwidth, and its own count of parameters,
/// operations and bytes. `record`: keeps the operations. REQUIRES: pipeline.check(layout).
Iteration execute(const plan::Layout& layout, const Pipeline& pipeline,
                  const cluster::Cluster& cluster, const Hardware& hardware, bool record = false);

/// The same with Pipeline::one_chunk().
Iteration execute(const plan::Layout& layout, const cluster::Cluster& cluster,
                  const Hardware& hardware, bool record = false);

}  // namespace swell::sim::judge
