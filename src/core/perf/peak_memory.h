// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/perf/performance_model.h"

namespace swell::perf {

/// Share of a GPU's memory set aside for allocations outside the program (CUDA context, NCCL
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

  /// Peak of a GPU in stage `i` of `pp`, whose group has `layers` layers and `local_batch` samples.
  PeakMemory peak(int i, int pp, int micro_batches, int layers, int tp, int local_batch,
                  int type) const noexcept;
  /// Peak of the fullest group of stage `i`.
  PeakMemory stage_peak(const plan::Layout& layout, int i) const noexcept;
  /// Largest number of layers that a group can hold; 0 where not even one fits.
  int max_layers(int i, int pp, int micro_batches, int tp, int local_batch,
                 int type) const noexcept;
  /// Largest number of samples that a group can have with `layers` layers; 0 where not even one
  /// fits.
  int max_samples(int i, int pp, int micro_batches, int layers, int tp, int type) const noexcept;
  /// Whether every GPU's peak is within its memory.
  bool fits(const plan::Layout& layout) const noexcept;

 private:
  /// peak = per_layer * layers + fixed + samples * (sample_layer * layers + sample_fixed)
  struct Linear {
    double per_layer, fixed, sample_layer, sample_fixed;
  };
  Linear linear(int i, int pp, int micro_batches, int tp) const noexcept;
  const PerformanceModel& model_;
};

}  // namespace swell::perf
