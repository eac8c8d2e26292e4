// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/models/chain.h"
#include "core/models/model.h"
#include "core/perf/coefficients.h"
#include "core/plan/layout.h"

namespace swell::perf {

/// Degrees of a plan with identical stages, on GPUs of one type.
struct Combination {
  int pp = 1, dp = 1, tp = 1;
  int micro_batches = 1;  ///< m: micro-batches of each pipeline
  int chunks = 0;         ///< v: chunks of each stage; 0: one for each division of the model
  int gpus() const noexcept { return pp * dp * tp; }
  friend bool operator==(const Combination&, const Combination&) = default;
};

/// Parts of an iteration in seconds, FlexTrain's eqs. 1 to 4.
struct ModelledTime {
  double ideal = 0;         ///< m (t_F + t_B), eq. 1
  double bubble = 0;        ///< (p - 1) (t_F + t_B) / v, eqs. 2 and 3
  double extra_bubble = 0;  ///< (p - m) (v - 1) (t_F + t_B) / v if m < p, eq. 4
  double total() const noexcept { return ideal + bubble + extra_bubble; }
};

/// Adds up eqs. 1 to 4 for stages whose forward and backward pass of one micro-batch together take
/// `stage_s` seconds. With stage_s = v t^l the total is eq. 5: (m v + p - 1) t^l if m >= p, else (p
/// v + m - 1) t^l. No schedule of equal chunks with whole backward passes is faster.
ModelledTime modelled_pipeline(int micro_batches, int stages, int chunks, double stage_s) noexcept;

/// FlexTrain's modelling-based prediction (section 4.4.1): computes the iteration time from the
/// time of one layer. Ignores communication, optimizer and memory, and treats all units as equal,
/// so its errors differ from PerformanceModel's. Use it to compare speed-ups, not for absolute
/// times. `coefficients` may come from a profile or from data sheets (expected_coefficients()).
/// Keeps references: model and coefficients must outlive it. Const, hence safe between threads.
class ModelledPredictor {
 public:
  ModelledPredictor(const models::Model& model, const Coefficients& coefficients) noexcept;

  /// Returns L of section 4.4.1, the number of computational divisions of the model: the work of
  /// all units of its chain, in layers, rounded. Units that take no time, such as the embedding, do
  /// not count; units as large as a layer count one each.
  int divisions() const noexcept { return divisions_; }
  /// Returns the seconds of both passes of one division on a TP group that has `local_batch`
  /// samples of the micro-batch.
  double division_s(int type, int tp, double local_batch) const noexcept;

  /// Returns the iteration time of `degrees` on GPUs of `type`: m micro-batches of global_batch /
  /// (m d) samples a replica. Eq. 6 is the case of one sample: m = B / d. REQUIRES: all degrees are
  /// positive.
  ModelledTime time(const Combination& degrees, int type) const noexcept;
  /// Returns the iteration time of any plan. Ignores the plan's split of layers: spreads the
  /// divisions over its stages so that the slowest one is as fast as possible. Equals the overload
  /// above if the stages are identical. An injected error (Coefficients::plan_error) differs from
  /// PerformanceModel's.
  ModelledTime time(const plan::Layout& layout) const;
  /// Returns samples a second: the global batch over time().
  double throughput(const plan::Layout& layout) const {
    return model_.global_batch / time(layout).total();
  }

 private:
  const models::Model& model_;
  const Coefficients& coefficients_;
  double work_;  ///< work of the model, in layers
  int divisions_;
};

}  // namespace swell::perf
