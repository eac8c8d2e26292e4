// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/planner/refine.h"

namespace swell::planner {

/// Finds the best plan under the performance model, for small cases: every order of stages, every
/// TP degree, every set of groups (GPUs of one node and type are alike), every split of layers and
/// samples. Exact: dynamic programming puts stages in front of partial pipelines, and drops a
/// partial pipeline only where another one with the same GPUs and layers left is no worse in all
/// that the stages in front can see (docs/planner.md has the argument). Time and memory grow
/// exponentially with nodes; meant for up to 12 GPUs.
class Exhaustive final : public Solver {
 public:
  struct Options {
    /// Solves only for all free GPUs; besides, the table has the current plan.
    bool last_only = false;
  };
  Exhaustive() = default;
  explicit Exhaustive(Options options) : options_(options) {}
  ScaleTable solve(const Problem& problem, const Budget& budget) const override;

 private:
  Options options_;
};

/// The optimum over at most `gpus`, at least as good as `bound`. With exact consistency, over the
/// plans that keep the groups of `problem.current`. `complete` becomes false where the evaluator's
/// budget or the memory that a search may use has ended it.
Solution best_of_all(const Problem& problem, Evaluator& evaluator, const Islands& gpus,
                     Solution bound, bool& complete);

}  // namespace swell::planner
