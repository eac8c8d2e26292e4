// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>

#include "core/executor.h"
#include "core/planner/solver.h"

namespace swell::planner {

/// Wraps a solver and tries fewer and larger micro-batches: the same samples in an iteration, in
/// half as many micro-batches of twice the size, and so on. Few samples in a micro-batch limit the
/// DP degree, for which no other dimension makes up on many GPUs. The order of an iteration's sums
/// changes, so Consistency::exact keeps the number of micro-batches.
class FewerMicroBatches final : public Solver {
 public:
  /// `executor` solves for several numbers of micro-batches at a time; null: one after the other.
  /// The table is the same. REQUIRES then: one solver serves several threads, as Solver says.
  explicit FewerMicroBatches(std::unique_ptr<const Solver> solver,
                             std::shared_ptr<Executor> executor = nullptr)
      : solver_(std::move(solver)), executor_(std::move(executor)) {}
  ScaleTable solve(const Problem& problem, const Budget& budget) const override;

 private:
  std::unique_ptr<const Solver> solver_;
  std::shared_ptr<Executor> executor_;
};

}  // namespace swell::planner
