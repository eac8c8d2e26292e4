// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/planner/solver.h"

namespace swell::planner {

/// Searches asymmetric plans from scratch in the manner of Metis: for each number of stages, device
/// groups of limited difference in size, in every order up to a limit, over every order of GPU
/// types; within a stage, TP degrees by coordinate descent; layers and samples balanced. Runs until
/// all are seen or time is up, so plans improve with the time given. Its two limits have the names
/// and the values that Suika's evaluation gives Metis.
class Metis final : public Solver {
 public:
  struct Options {
    /// Smallest stage, as a share of the GPUs of an even one.
    double min_group_scale_variance = 0.5;
    int max_permute_len = 4;  ///< stage sizes that may stand in any order; more are sorted
    bool last_only = false;   ///< solves only for all free GPUs
  };
  Metis() = default;
  explicit Metis(Options options) : options_(options) {}
  ScaleTable solve(const Problem& problem, const Budget& budget) const override;

 private:
  Options options_;
};

}  // namespace swell::planner
