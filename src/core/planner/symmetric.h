// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/planner/refine.h"

namespace swell::planner {

/// Degrees that a symmetric plan may have; 0: any.
struct SymmetricSpace {
  int pp = 0;
  int tp = 0;
};

/// Returns the best plan in which all stages have one DP degree, one TP degree and equal local
/// batches, and layers are split as evenly as possible. Uses at most the GPUs of `gpus`; groups are
/// filled node by node. The plan has infinite seconds if none fits.
Solution best_symmetric(Evaluator& evaluator, const Islands& gpus, int micro_batches,
                        const Degrees& degrees, SymmetricSpace space);

/// Rubick's space: for each number of GPUs the best symmetric 3D plan.
class Symmetric final : public Solver {
 public:
  ScaleTable solve(const Problem& problem, const Budget& budget) const override;
};

/// Sia's space: PP and TP of the current plan, with a larger DP.
class DpOnly final : public Solver {
 public:
  ScaleTable solve(const Problem& problem, const Budget& budget) const override;
};

}  // namespace swell::planner
