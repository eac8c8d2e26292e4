// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/gpu_type.h"
#include "core/models/model.h"
#include "sim/judge/software.h"

namespace swell::sim::judge {

/// Fully sharded data parallelism, which no plan of Swell's form describes: for scoring the judge's
/// computation and collectives against published runs.
struct FsdpRun {
  models::Model model;
  int nodes = 1, gpus_per_node = 8;
  int micro_batch = 1, accumulated = 1;  ///< samples a GPU and pass; passes of one iteration
  double node_network_bytes_per_s = 200e9;
};

/// Seconds of one iteration: each layer's parameters are gathered before its forward and again
/// before its backward pass, its gradients scattered after that; what one layer communicates runs
/// beside the computation of the next.
double fsdp_iteration_s(const FsdpRun& run, const Software& software, const cluster::GpuType& gpu,
                        double slowness);

}  // namespace swell::sim::judge
