// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/planner/solver.h"

namespace swell::planner {

/// Searches asymmetric plans from scratch as Metis does. For each number of stages, tries device
/// groups whose sizes differ by a limited factor, in every order up to a limit, with every order of
/// GPU types. Finds the TP degrees within a stage by coordinate descent, and balances layers and
/// samples. Runs until all combinations are tried or time is up, so a longer limit gives better
/// plans. The two limits have the names and values of Metis in Suika's evaluation.
class Metis final : public Solver {
 public:
  struct Options {
    /// Smallest stage, as a share of the GPUs of a stage in an even split.
    double min_group_scale_variance = 0.5;
    int max_permute_len = 4;  ///< maximum number of stage sizes tried in any order; more are sorted
    bool last_only = false;   ///< solves only for all free GPUs
  };
  Metis() = default;
  explicit Metis(Options options) : options_(options) {}
  ScaleTable solve(const Problem& problem, const Budget& budget) const override;

 private:
  Options options_;
};

}  // namespace swell::planner
