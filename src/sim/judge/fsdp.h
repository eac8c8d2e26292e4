// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/gpu_type.h"
#include "core/models/model.h"
#include "sim/judge/software.h"

namespace swell::sim::judge {

/// A run with fully sharded data parallelism, which Swell's plans cannot describe. Used to score
/// the judge's computation and collectives against published runs.
struct FsdpRun {
  models::Model model;
  int nodes = 1, gpus_per_node = 8;
  int micro_batch = 1;  ///< samples of one GPU in one pass
  int accumulated = 1;  ///< passes of one iteration
  double node_network_bytes_per_s = 200e9;
};

/// Returns the seconds of one iteration. Each layer's parameters are gathered before its forward
/// pass and again before its backward pass, and its gradients are scattered after that. A layer's
/// communication overlaps the computation of the next layer.
double fsdp_iteration_s(const FsdpRun& run, const Software& software, const cluster::GpuType& gpu,
                        double slowness);

}  // namespace swell::sim::judge
