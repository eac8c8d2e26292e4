// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/cluster.h"
#include "core/perf/coefficients.h"
#include "core/plan/layout.h"

namespace swell::redeploy {

/// What a job's training state has to do between two of its plans. Every GPU of a plan holds the
/// parameters and optimizer state of its stage's layers, the shard of its place in its TP group.
struct StateMoves {
  double whole_bytes = 0;       ///< one copy of everything
  double max_had_bytes = 0;     ///< on one GPU before
  double max_needed_bytes = 0;  ///< on one GPU afterwards
  double max_local_bytes = 0;   ///< of what one GPU needs, what it has already
  double remote_bytes = 0;      ///< crosses between GPUs, over all of them
  double link_s = 0;  ///< until the last remote byte is there, if every link ran at full speed
};

/// Compares, GPU by GPU, which layers and TP shard it has under `from` and needs under `to`. What
/// is missing comes from the replica that has sent least so far, of the same node where there is
/// one. Both layouts refer to `cluster` and hold the same number of layers.
StateMoves state_moves(const perf::Coefficients& coefficients, const plan::Layout& from,
                       const plan::Layout& to, const cluster::Cluster& cluster);

}  // namespace swell::redeploy
