// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/planner/refine.h"

namespace swell::planner {

/// Finds the best plan under the performance model for small cases. Tries every order of stages,
/// every TP degree, every set of groups (GPUs of one node and type are interchangeable), and every
/// split of layers and samples. Exact: dynamic programming adds stages in front of partial
/// pipelines. It drops a partial pipeline only if another one, which leaves the same GPUs and
/// layers, is at least as good in everything that affects the stages in front (docs/planner.md has
/// the argument). Time and memory grow exponentially with the number of nodes; meant for up to 12
/// GPUs.
class Exhaustive final : public Solver {
 public:
  struct Options {
    /// Solves only for all free GPUs; the table then has this row and the current plan.
    bool last_only = false;
  };
  Exhaustive() = default;
  explicit Exhaustive(Options options) : options_(options) {}
  ScaleTable solve(const Problem& problem, const Budget& budget) const override;

 private:
  Options options_;
};

/// Returns the optimum over at most `gpus`, which is at least as good as `bound`. With exact
/// consistency, considers only plans that keep the groups of `problem.current`. Sets `complete` to
/// false if the evaluator's budget or the memory limit ended the search.
Solution best_of_all(const Problem& problem, Evaluator& evaluator, const Islands& gpus,
                     Solution bound, bool& complete);

}  // namespace swell::planner
