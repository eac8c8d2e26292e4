// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/models/chain.h"
#include "core/models/model.h"
#include "core/perf/coefficients.h"
#include "core/plan/layout.h"

namespace swell::perf {

/// Degrees of a plan whose stages are all alike, on GPUs of one type.
struct Combination {
  int pp = 1, dp = 1, tp = 1;
  int micro_batches = 1;  ///< m: of each pipeline
  int chunks = 0;         ///< v: chunks of each stage; 0: one for each division of the model
  int gpus() const noexcept { return pp * dp * tp; }
  friend bool operator==(const Combination&, const Combination&) = default;
};

/// Parts of an iteration in seconds, FlexTrain's eqs. 1 to 4.
struct ModelledTime {
  double ideal = 0;         ///< m (t_F + t_B), eq. 1
  double bubble = 0;        ///< (p - 1) (t_F + t_B) / v, eqs. 2 and 3
  double extra_bubble = 0;  ///< (p - m) (v - 1) (t_F + t_B) / v where m < p, eq. 4
  double total() const noexcept { return ideal + bubble + extra_bubble; }
};

/// Adds up eqs. 1 to 4 for stages whose passes of one micro-batch take `stage_s` seconds, both ways
/// together. With stage_s = v t^l the total is eq. 5: (m v + p - 1) t^l where m >= p, else
/// (p v + m - 1) t^l, which no schedule of equal chunks with whole backward passes is below.
ModelledTime modelled_pipeline(int micro_batches, int stages, int chunks, double stage_s) noexcept;

/// FlexTrain's modelling-based prediction (section 4.4.1): iteration time from the time of a layer
/// alone. It knows no communication, no optimizer and no memory, and takes units to be equal, so
/// that its errors differ from PerformanceModel's; for speed-ups against each other, not for times.
/// `coefficients` may come from a profile or from data sheets (expected_coefficients()). Keeps
/// references: model and coefficients must outlive it. Const, hence safe between threads.
class ModelledPredictor {
 public:
  ModelledPredictor(const models::Model& model, const Coefficients& coefficients) noexcept;

  /// L of section 4.4.1, the computational divisions of the model: the work of all units of its
  /// chain in layers, rounded. Units that take no time, such as the embedding, do not count; equal
  /// units count one each.
  int divisions() const noexcept { return divisions_; }
  /// Seconds of both passes of one division on a TP group, for a micro-batch of which the group has
  /// `local_batch` samples.
  double division_s(int type, int tp, double local_batch) const noexcept;

  /// Iteration of `degrees` on GPUs of `type`: m micro-batches of global_batch / (m d) samples a
  /// replica. Eq. 6 is the case of one sample: m = B / d. REQUIRES: all degrees are positive.
  ModelledTime time(const Combination& degrees, int type) const noexcept;
  /// Iteration of any plan: the divisions are spread over its stages such that the slowest one is
  /// as fast as possible, whatever layers the plan gives them. Equals the other form where stages
  /// are alike. Where errors are injected (Coefficients::plan_error), has one of its own.
  ModelledTime time(const plan::Layout& layout) const;
  /// Samples a second: the global batch over time().
  double throughput(const plan::Layout& layout) const {
    return model_.global_batch / time(layout).total();
  }

 private:
  const models::Model& model_;
  const Coefficients& coefficients_;
  double work_;  ///< in layers
  int divisions_;
};

}  // namespace swell::perf
