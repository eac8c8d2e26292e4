// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/cluster/gpu_type.h"
#include "core/models/model_graph.h"
#include "core/perf/coefficients.h"

namespace swell::perf {

/// Shares of the figures on a GPU's data sheet that kernels reach.
struct Attainable {
  double matmul = 0.7;  ///< of peak speed: matrix products
  double convolution = 0.5;
  double attention = 0.5;  ///< fused
  double memory = 0.8;     ///< of the bandwidth of the GPU's memory
  /// Share of peak speed that operators of `kind` reach; 1 for those that memory limits.
  double of(models::OperatorKind kind) const noexcept;
};

/// Passes of an iteration, in forward passes. Backward: gradients of inputs and of weights.
inline constexpr double kBackwardPasses = 2;

/// Seconds of work under a roofline: operations over the smaller of `peak_flop_per_s` and intensity
/// times bandwidth (Arena, eq. 2), which is the larger of both limits. The form used here is also
/// right without operations.
inline double roofline_s(double flop, double bytes, double peak_flop_per_s,
                         double bytes_per_s) noexcept {
  const double compute = flop / peak_flop_per_s, memory = bytes / bytes_per_s;
  return compute > memory ? compute : memory;
}

/// Seconds in which a GPU's memory moves `bytes`. A type whose bandwidth is unknown has 1 TB/s.
double memory_s(double bytes, const cluster::GpuType& gpu, const Attainable& reached = {}) noexcept;

/// Forward seconds of one sample of `one` on a GPU, in micro-batches of `samples`, which read the
/// weights once. Peak speed is that of bf16, or of the next wider format that the GPU has.
double forward_s(const models::Operator& one, const cluster::GpuType& gpu, double samples,
                 const Attainable& reached = {}) noexcept;

/// Forward seconds of one sample of operators that run one after another.
struct ForwardTime {
  double split_s = 0;  ///< of those that a TP group divides
  double whole_s = 0;  ///< of those that each GPU of a TP group computes as a whole
  double total() const noexcept { return split_s + whole_s; }
};
ForwardTime forward_s(const std::vector<models::Operator>& operators, const cluster::GpuType& gpu,
                      double samples, const Attainable& reached = {}) noexcept;

/// Load of operators for clusters: forward_s() on `gpu`.
models::OperatorLoad roofline_load(const cluster::GpuType& gpu, double samples);

/// Bytes that Adam's update moves for each parameter of `state_bytes` (itself and both moments) and
/// `gradient_bytes`: all are read once and written once.
inline double update_bytes(double state_bytes, double gradient_bytes) noexcept {
  return 2 * (state_bytes + gradient_bytes);
}

/// Coefficients of a job whose model is `graph`, from its operators and the GPUs' data sheets:
/// backward passes of twice the forward pass, Adam in the type of the parameters. `chain` is
/// chain_of() of the same graph; `samples`: of a micro-batch on one GPU.
Coefficients expected_coefficients(const models::Graph& graph, const models::GraphChain& chain,
                                   const cluster::Cluster& cluster, double samples);

}  // namespace swell::perf
