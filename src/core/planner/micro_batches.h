// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>

#include "core/planner/solver.h"

namespace swell::planner {

/// Another solver's tables, with fewer and larger micro-batches where that is faster: as many
/// samples in an iteration, in half as many micro-batches of twice the size, and so on. A
/// micro-batch of few samples limits the DP degree, which no other dimension makes good for on many
/// GPUs. The sums of an iteration are made in another order, so Consistency::exact keeps the number
/// of micro-batches.
class FewerMicroBatches final : public Solver {
 public:
  explicit FewerMicroBatches(std::unique_ptr<const Solver> solver) : solver_(std::move(solver)) {}
  ScaleTable solve(const Problem& problem, const Budget& budget) const override;

 private:
  std::unique_ptr<const Solver> solver_;
};

}  // namespace swell::planner
