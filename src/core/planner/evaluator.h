// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <limits>
#include <vector>

#include "core/perf/pass_table.h"
#include "core/perf/peak_memory.h"
#include "core/perf/performance_model.h"
#include "core/planner/island.h"
#include "core/planner/solver.h"

namespace swell::planner {

/// Turns a plan's skeleton (stages with their TP degrees and groups) into the best plan with that
/// skeleton, and estimates its iteration time. Caches layer times; each thread needs its own
/// evaluator.
class Evaluator {
 public:
  /// `micro_batch`: samples of one micro-batch, which are split over each stage's groups.
  /// `keep_samples`: keeps the split that each skeleton has already.
  Evaluator(const perf::PerformanceModel& perf, int micro_batch, bool keep_samples = false);

  /// Returns a copy with an empty evaluation count, for another thread.
  Evaluator another() const {
    Evaluator copy(perf_, micro_batch_, keep_samples_);
    copy.budget_ = budget_;
    return copy;
  }
  /// Sets the limit after which no more plans are evaluated. `budget` must outlive the evaluator.
  void stop_by(const Budget& budget) noexcept { budget_ = &budget; }
  const Budget& budget() const noexcept { return *budget_; }
  /// Returns whether the limit is reached. Searches that do not call finish() for each step call
  /// this.
  bool over() {
    if (!over_ && budget_ != &kNoLimit && ++looks_ % kLookEvery == 0) over_ = budget_->expired();
    return over_;
  }

  /// Load-Balance of Algorithm 1: sets local batches and layers of `layout` to the min-max split
  /// that fits memory. Each stage has one chunk. Returns false if the skeleton cannot hold the
  /// model.
  bool balance(plan::Layout& layout);
  /// Balances `layout` and returns its iteration time in seconds. Returns infinity if the model
  /// does not fit, the time is not below `unless` seconds, or the search is over().
  double finish(plan::Layout& layout, double unless = std::numeric_limits<double>::infinity());
  /// Moves single layers between stages of a balanced layout that takes `seconds` as long as each
  /// move makes it faster: balance() ignores synchronization. Returns the new iteration time in
  /// seconds. Leaves a layout with chunks as it is.
  double settle(plan::Layout& layout, double seconds);
  /// Returns the iteration time of a balanced layout, in seconds.
  double seconds(const plan::Layout& layout);

  /// Returns a lower bound of the iteration time of all plans on `used` GPUs of `gpus`, in seconds:
  /// as if all were of the fastest type and never idle.
  double ideal_seconds(const Islands& gpus, int used, int micro_batches) const;

  /// Returns the speed of one GPU: layers times samples a second, forward and backward.
  double speed(int type) const noexcept;

  const perf::PerformanceModel& perf() const noexcept { return perf_; }
  const perf::MemoryModel& memory() const noexcept { return memory_; }
  int micro_batch() const noexcept { return micro_batch_; }
  long evaluated() const noexcept { return evaluated_; }
  /// Adds `known` plans, whose earlier results are reused, to evaluated().
  void count(long known) noexcept { evaluated_ += known; }

 private:
  bool split_samples(plan::StageLayout& stage);
  double layer_time(int type, int tp, int local_batch) {
    const perf::PerformanceModel::Passes passes = passes_.of(type, tp, local_batch);
    return passes.fwd + passes.bwd;
  }

  static constexpr unsigned kLookEvery = 4;

  const perf::PerformanceModel& perf_;
  perf::MemoryModel memory_;
  int micro_batch_;
  bool keep_samples_;
  int dp_step_;  ///< DP degrees of stages are multiples of this
  long evaluated_ = 0;
  inline static const Budget kNoLimit;
  const Budget* budget_ = &kNoLimit;
  unsigned looks_ = 0;
  bool over_ = false;
  perf::PassTable passes_;
  std::vector<double> cost_;
  std::vector<int> cap_, share_;
};

}  // namespace swell::planner
