// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>

#include "core/executor.h"
#include "core/planner/solver.h"

namespace swell::planner {

/// Wraps a solver and also tries fewer and larger micro-batches: the same samples in an iteration,
/// in half as many micro-batches of twice the size, and so on. Few samples in a micro-batch limit
/// the DP degree; on many GPUs no other dimension compensates for this. The order of summation
/// within an iteration changes, so Consistency::exact keeps the number of micro-batches.
class FewerMicroBatches final : public Solver {
 public:
  /// `executor`: solves for several numbers of micro-batches in parallel; null: one after the
  /// other. The table is the same. REQUIRES with an executor: `solver` may be called by several
  /// threads.
  explicit FewerMicroBatches(std::unique_ptr<const Solver> solver,
                             std::shared_ptr<Executor> executor = nullptr)
      : solver_(std::move(solver)), executor_(std::move(executor)) {}
  ScaleTable solve(const Problem& problem, const Budget& budget) const override;

 private:
  std::unique_ptr<const Solver> solver_;
  std::shared_ptr<Executor> executor_;
};

}  // namespace swell::planner
