// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/cluster.h"
#include "core/models/model.h"
#include "core/perf/coefficients.h"
#include "core/plan/layout.h"

namespace swell::redeploy {

/// Bytes of training state that move when a job changes its plan. Every GPU of a plan holds the
/// parameters and optimizer state of its stage's layers: the shard for its position in its TP
/// group. CP ranks hold the same, EP ranks different experts.
struct StateMoves {
  double whole_bytes = 0;       ///< one copy of the whole state
  double max_had_bytes = 0;     ///< maximum on one GPU before the change
  double max_needed_bytes = 0;  ///< maximum on one GPU after the change
  double max_local_bytes = 0;   ///< maximum that one GPU needs and already has
  double remote_bytes = 0;      ///< total bytes that move between GPUs
  /// Seconds until the last of these bytes arrives if every link runs at full speed.
  double link_s = 0;
};

/// CP and EP of a model, which stay the same in all its plans.
struct Ranks {
  int cp = 1, ep = 1;
  double experts = 0;  ///< experts' share of the bytes that a rank holds of a layer
  friend bool operator==(const Ranks&, const Ranks&) = default;
};
Ranks ranks_of(const models::Model& model);

/// Compares for each GPU the layers, TP shard and experts that it has under `from` and needs under
/// `to`. A missing part comes from the replica that has sent least so far, on the same node if
/// possible. REQUIRES: both layouts are of `cluster`, have the same number of layers, and were made
/// for a model with `ranks`.
StateMoves state_moves(const perf::Coefficients& coefficients, const plan::Layout& from,
                       const plan::Layout& to, const cluster::Cluster& cluster,
                       const Ranks& ranks = {});

}  // namespace swell::redeploy
