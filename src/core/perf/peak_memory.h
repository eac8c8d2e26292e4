// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/perf/performance_model.h"
#include "core/schedule/schedule.h"

namespace swell::perf {

/// Share of a GPU's memory reserved for allocations outside the program (CUDA context, NCCL
/// buffers) and for errors of the estimate: 10 % (Suika, appendix A.3).
inline constexpr double kMemoryOverhead = 0.10;

/// Peak memory of one GPU, in bytes. Suika, appendix A.3.
struct PeakMemory {
  double param_optim = 0;
  double activ = 0;
  double grad = 0;
  double overhead = 0;
  double total() const noexcept { return param_optim + activ + grad + overhead; }
};

/// Peak memory of plans, from the same coefficients as the iteration time. Keeps a reference to
/// `model`, which must outlive it. Const, hence safe between threads.
class MemoryModel {
 public:
  explicit MemoryModel(const PerformanceModel& model) noexcept : model_(model) {}

  // `dp`: number of groups of the stage; it matters only if they shard state.

  /// Returns the peak of a GPU in stage `i` of `pp`, whose group has `layers` layers and
  /// `local_batch` samples.
  PeakMemory peak(int i, int pp, int micro_batches, int layers, int tp, int local_batch, int type,
                  int dp = 1) const noexcept;
  /// Returns the bytes that a GPU of a TP group keeps from the forward pass of one chunk with
  /// `load` to its backward pass.
  double kept_bytes(const models::Load& load, int tp, int local_batch) const noexcept;
  /// Returns the bytes that a GPU of a stage with `load` always holds: parameters, optimizer state
  /// and gradients, and the reserve.
  double held_bytes(const models::Load& load, int tp, int type, int dp = 1) const noexcept;
  /// Returns the peak of a GPU of `group`, in stage `i` whose chunks hold `loads`, under
  /// `schedule`. If the schedule has separate weight passes, these free the activations of a chunk.
  PeakMemory peak(const schedule::Schedule& schedule, const std::vector<models::Load>& loads, int i,
                  int tp, const plan::GroupLayout& group, int dp) const;
  /// Returns the peak of a GPU of `group` in stage `i` under the plan's schedule.
  PeakMemory group_peak(const plan::Layout& layout, int i, const plan::GroupLayout& group) const;
  /// Returns the peak of the fullest group of stage `i` under the plan's schedule.
  PeakMemory stage_peak(const plan::Layout& layout, int i) const;
  /// Returns the maximum number of layers that a group can hold; 0 if not even one fits.
  int max_layers(int i, int pp, int micro_batches, int tp, int local_batch, int type,
                 int dp = 1) const noexcept;
  /// Returns the maximum number of samples that a group can have with `layers` layers; 0 if not
  /// even one fits.
  int max_samples(int i, int pp, int micro_batches, int layers, int tp, int type,
                  int dp = 1) const noexcept;
  /// Returns whether every GPU's peak is within its memory.
  bool fits(const plan::Layout& layout) const;

 private:
  /// peak = per_layer * layers + fixed + samples * (sample_layer * layers + sample_fixed)
  struct Linear {
    double per_layer, fixed, sample_layer, sample_fixed;
  };
  /// Returns the loads of the chunks of stage `i`.
  std::vector<models::Load> loads_of(const plan::Layout& layout, int i) const;
  /// Returns the memory without activations.
  PeakMemory held(const models::Load& load, int tp, int type, int dp) const noexcept;
  Linear linear(int i, int pp, int micro_batches, int tp, int dp) const noexcept;
  /// Memory that MTP heads add to the last stage of one chunk, for `in_flight` micro-batches.
  struct Mtp {
    double param_optim = 0, grad = 0, sample = 0;
  };
  Mtp mtp(bool first, int in_flight, int tp) const noexcept;
  const PerformanceModel& model_;
};

}  // namespace swell::perf
