// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/planner/solver.h"

namespace swell::planner {

/// A search from scratch over asymmetric plans in the manner of Metis: for each number of stages,
/// device groups whose sizes do not differ too much, in every order up to a limit, over every order
/// of GPU types; within a stage, TP degrees by coordinate descent; layers and samples balanced.
/// Goes on until it has seen everything or time is up, hence as good as the time it is given. Its
/// two limits have the names and the values that Suika's evaluation gives Metis.
class Metis final : public Solver {
 public:
  struct Options {
    /// A stage has at least this share of an even one's GPUs.
    double min_group_scale_variance = 0.5;
    int max_permute_len = 4;  ///< stage sizes that may stand in any order; more are sorted
    bool last_only = false;   ///< only the row with all free GPUs
  };
  Metis() = default;
  explicit Metis(Options options) : options_(options) {}
  ScaleTable solve(const Problem& problem, const Budget& budget) const override;

 private:
  Options options_;
};

}  // namespace swell::planner
