// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/gpu_type.h"
#include "core/models/model_graph.h"
#include "core/perf/coefficients.h"

namespace swell::perf {

/// Share of peak speed that operators of `kind` reach.
double share_of_peak(models::OperatorKind kind) noexcept;

/// Seconds of work under a roofline: operations over the smaller of `peak_flop_per_s` and intensity
/// times bandwidth (Arena, eq. 2), which is the larger of both limits. The form used here is also
/// right without operations.
inline double roofline_s(double flop, double bytes, double peak_flop_per_s,
                         double bytes_per_s) noexcept {
  const double compute = flop / peak_flop_per_s, memory = bytes / bytes_per_s;
  return compute > memory ? compute : memory;
}

/// Forward seconds of one sample of `one` on a GPU, in micro-batches of `samples`, which read the
/// weights once.
double forward_s(const models::Operator& one, const cluster::GpuType& gpu, double samples) noexcept;

/// Load of operators for clusters: forward_s() on `gpu`.
models::OperatorLoad roofline_load(const cluster::GpuType& gpu, double samples);

/// Coefficients of a job whose model is `graph`, from its operators and the GPUs' data sheets:
/// backward passes of twice the forward pass, Adam in the type of the parameters. `chain` is
/// chain_of() of the same graph; `samples`: of a micro-batch on one GPU.
Coefficients expected_coefficients(const models::Graph& graph, const models::GraphChain& chain,
                                   const cluster::Cluster& cluster, double samples);

}  // namespace swell::perf
