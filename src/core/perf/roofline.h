// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/cluster/gpu_type.h"
#include "core/models/model_graph.h"
#include "core/perf/coefficients.h"

namespace swell::perf {

/// Shares of a GPU's data-sheet figures that kernels reach.
struct Attainable {
  double matmul = 0.7;  ///< of peak speed: matrix products
  double convolution = 0.5;
  double attention = 0.5;  ///< of peak speed: fused attention
  double memory = 0.8;     ///< of the bandwidth of the GPU's memory
  /// Returns the share of peak speed that operators of `kind` reach; 1 for operators limited by
  /// memory.
  double of(models::OperatorKind kind) const noexcept;
};

/// Time of a backward pass in forward passes: gradients of inputs and of weights.
inline constexpr double kBackwardPasses = 2;

/// Returns the seconds of work under a roofline: operations over the smaller of `peak_flop_per_s`
/// and intensity times bandwidth (Arena, eq. 2). This is the longer of computing and moving the
/// bytes; written so, it is also valid without operations.
inline double roofline_s(double flop, double bytes, double peak_flop_per_s,
                         double bytes_per_s) noexcept {
  const double compute = flop / peak_flop_per_s, memory = bytes / bytes_per_s;
  return compute > memory ? compute : memory;
}

/// Returns the seconds in which a GPU's memory moves `bytes`. A type of unknown bandwidth counts as
/// 1 TB/s.
double memory_s(double bytes, const cluster::GpuType& gpu, const Attainable& reached = {}) noexcept;

/// Returns the forward seconds of one sample of `one` on a GPU, in micro-batches of `samples`,
/// which read the weights once. Peak speed is for bf16, or for the next wider format that the GPU
/// has.
double forward_s(const models::Operator& one, const cluster::GpuType& gpu, double samples,
                 const Attainable& reached = {}) noexcept;

/// Forward seconds of one sample for operators that run one after another.
struct ForwardTime {
  double split_s = 0;  ///< operators that a TP group divides
  double whole_s = 0;  ///< operators that each GPU of a TP group computes as a whole
  double total() const noexcept { return split_s + whole_s; }
};
ForwardTime forward_s(const std::vector<models::Operator>& operators, const cluster::GpuType& gpu,
                      double samples, const Attainable& reached = {}) noexcept;

/// Returns the load function for clusters of operators: forward_s() on `gpu`.
models::OperatorLoad roofline_load(const cluster::GpuType& gpu, double samples);

/// Returns the bytes that Adam's update moves for each parameter, which has `state_bytes` (itself
/// and both moments) and `gradient_bytes`: all are read once and written once.
inline double update_bytes(double state_bytes, double gradient_bytes) noexcept {
  return 2 * (state_bytes + gradient_bytes);
}

/// Returns coefficients of a job whose model is `graph`, from its operators and the GPUs' data
/// sheets: backward passes take twice the forward pass, Adam's moments have the type of the
/// parameters. `chain`: chain_of() of the same graph; `samples`: of a micro-batch on one GPU.
Coefficients expected_coefficients(const models::Graph& graph, const models::GraphChain& chain,
                                   const cluster::Cluster& cluster, double samples);

}  // namespace swell::perf
