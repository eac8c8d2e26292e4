// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/cluster/cluster.h"
#include "core/plan/layout.h"
#include "sim/judge/hardware.h"

namespace swell::sim::judge {

/// One executed operation, for tests and drawings.
struct Operation {
  enum class Kind { forward, backward, send, gradients, optimizer } kind;
  int stage = 0;
  int group = 0;
  int micro_batch = 0;
  double begin_s = 0;
  double end_s = 0;
};

/// Result of one iteration.
struct Iteration {
  double seconds = 0;
  double idle_share = 0;  ///< share of all GPUs' time until the end
  std::vector<Operation> operations;
};

/// Executes one training iteration event by event: each group's forward and backward pass of each
/// micro-batch in 1F1B order; activations and gradients sent to each group of the next stage that
/// needs some of the samples; gradient rings; the optimizer. Transfers that use one node's network
/// at the same time share it. compute.h and collectives.h give the time of a pass, an all-reduce or
/// a message by curves fitted to measurements. Shares nothing with the performance model but the
/// cluster's description: there is no warm-up or steady phase, no overlap exponent, no logarithm of
/// a bandwidth, and its own count of parameters, operations and bytes. `record`: keeps the
/// operations.
Iteration execute(const plan::Layout& layout, const cluster::Cluster& cluster,
                  const Hardware& hardware, bool record = false);

}  // namespace swell::sim::judge
