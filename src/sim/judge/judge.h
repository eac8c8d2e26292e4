// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/cluster/cluster.h"
#include "core/models/chain.h"
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

/// How a plan runs: the order of its passes, and the units of each chunk.
struct Pipeline {
  schedule::Schedule schedule;
  /// Loads of the chunks, by stage * chunks + chunk. A chunk may be empty.
  std::vector<models::Load> loads;
  /// Returns that of the chunks that `layout` lists; without any, of one chunk a stage.
  static Pipeline of(const plan::Layout& layout, const models::Model& model,
                     schedule::Schedule schedule);
  /// The same under the interleaved schedule, which is 1F1B for one chunk.
  static Pipeline of(const plan::Layout& layout, const models::Model& model);
  /// Gives each chunk of a stage the same number of the stage's layers, the first ones one more
  /// where that does not divide. The embedding is on the first chunk, all heads are on the last.
  static Pipeline even_chunks(const plan::Layout& layout, schedule::Schedule schedule,
                              int mtp_heads = 0);
  const models::Load& at(int stage, int chunk) const noexcept {
    return loads[static_cast<std::size_t>(stage) * static_cast<std::size_t>(schedule.shape.chunks) +
                 static_cast<std::size_t>(chunk)];
  }
  /// All chunks of a stage.
  models::Load stage(int i) const noexcept;
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

/// The same with Pipeline::of(layout, hardware.model).
Iteration execute(const plan::Layout& layout, const cluster::Cluster& cluster,
                  const Hardware& hardware, bool record = false);

}  // namespace swell::sim::judge
