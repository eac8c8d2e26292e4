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
  enum class Kind { forward, backward, weights, send, gradients, optimizer, gather } kind;
  int stage = 0;
  int group = 0;
  int micro_batch = 0;
  double begin_s = 0;
  double end_s = 0;
  int chunk = 0;
};

/// Execution order of a plan: the schedule of its passes, and the units of each chunk.
struct Pipeline {
  schedule::Schedule schedule;
  /// Loads of the chunks, by stage * chunks + chunk. A chunk may be empty.
  std::vector<models::Load> loads;
  /// Returns the pipeline of the chunks that `layout` lists; if it lists none, of one chunk a
  /// stage.
  static Pipeline of(const plan::Layout& layout, const models::Model& model,
                     schedule::Schedule schedule);
  /// Does the same with the interleaved schedule, which is 1F1B for one chunk.
  static Pipeline of(const plan::Layout& layout, const models::Model& model);
  /// Splits each stage's layers evenly over its chunks; the first chunks get one more if there is a
  /// remainder. The embedding is on the first chunk, all heads are on the last.
  static Pipeline even_chunks(const plan::Layout& layout, schedule::Schedule schedule,
                              int mtp_heads = 0);
  const models::Load& at(int stage, int chunk) const noexcept {
    return loads[static_cast<std::size_t>(stage) * static_cast<std::size_t>(schedule.shape.chunks) +
                 static_cast<std::size_t>(chunk)];
  }
  /// Returns the load of all chunks of a stage.
  models::Load stage(int i) const noexcept;
  /// Returns an error unless the schedule is valid, and schedule and chunks match `layout`.
  Result<void> check(const plan::Layout& layout) const;
};

/// Result of one iteration.
struct Iteration {
  double seconds = 0;
  double idle_share = 0;  ///< idle share of the total time of all GPUs until the end
  std::vector<Operation> operations;
};

/// Executes one training iteration event by event: each group's passes of each micro-batch in the
/// order of the schedule; activations and gradients sent to each group of the stage with the next
/// chunk that needs some of the samples; gradient rings; the optimizer. Concurrent transfers over
/// one node's network share it. compute.h and collectives.h give the time of a pass, an all-reduce
/// or a message by curves fitted to measurements. Shares only the cluster's description with the
/// performance model, and does not use schedule::evaluate(): there is no warm-up or steady phase,
/// no overlap exponent, no logarithm of a bandwidth, and it counts parameters, operations and bytes
/// by itself. `record`: keeps the operations. REQUIRES: pipeline.check(layout).
Iteration execute(const plan::Layout& layout, const Pipeline& pipeline,
                  const cluster::Cluster& cluster, const Hardware& hardware, bool record = false);

/// Does the same with Pipeline::of(layout, hardware.model).
Iteration execute(const plan::Layout& layout, const cluster::Cluster& cluster,
                  const Hardware& hardware, bool record = false);

}  // namespace swell::sim::judge
