// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/cluster/cluster.h"
#include "sim/judge/hardware.h"
#include "core/plan/layout.h"

namespace swell::sim::judge {

/// One operation that was executed, for tests and for drawing.
struct Operation {
  enum class Kind { forward, backward, send, gradients, optimizer } kind;
  int stage = 0;
  int group = 0;
  int micro_batch = 0;
  double begin_s = 0;
  double end_s = 0;
};

/// What happened in one iteration.
struct Iteration {
  double seconds = 0;
  double idle_share = 0;  ///< of all GPUs' time until the end
  std::vector<Operation> operations;
};

/// Executes one training iteration event by event: each group's forward and backward pass of each
/// micro-batch in 1F1B order, layer by layer with its tensor parallel all-reduces as ring steps,
/// activations and gradients sent to each group of the next stage that needs some of the samples,
/// gradient rings with a link each between neighbours, the optimizer. It shares no formula with
/// the performance model: there is no warm-up or steady phase, no overlap exponent, no logarithm of
/// a bandwidth; what a plan takes is the time of the last event. `record`: keep the operations.
Iteration execute(const plan::Layout& layout, const cluster::Cluster& cluster, const Hardware& hardware, bool record = false);

}  // namespace swell::sim::judge
