// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/planner/refine.h"

namespace swell::planner {

/// Degrees that a symmetric plan may have; 0: any.
struct SymmetricSpace {
  int pp = 0;
  int tp = 0;
};

/// The best plan whose stages all have one DP and one TP degree and equal local batches, with
/// layers split as evenly as possible, over at most the GPUs of `gpus`; groups are filled node by
/// node. Infinite seconds where none fits.
Solution best_symmetric(Evaluator& evaluator, const Islands& gpus, int micro_batches,
                        const Degrees& degrees, SymmetricSpace space);

/// Rubick's space: for each number of GPUs the best symmetric 3D plan.
class Symmetric final : public Solver {
 public:
  ScaleTable solve(const Problem& problem, const Budget& budget) const override;
};

/// Sia's space: PP and TP stay as the current plan's, DP grows.
class DpOnly final : public Solver {
 public:
  ScaleTable solve(const Problem& problem, const Budget& budget) const override;
};

}  // namespace swell::planner
