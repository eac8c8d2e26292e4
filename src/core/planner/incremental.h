// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/planner/solver.h"

namespace swell::planner {

/// Suika's Algorithm 1: plans for more and more GPUs, each derived from one of the plans before it.
class Incremental final : public Solver {
 public:
  struct Options {
    int window = 8;  ///< W: predecessors that are looked at
    int group = 0;   ///< w: GPUs taken at once; 0: min(ceil(n / 16), max(8, n / 64, in whole nodes
                     ///< of 8)), n = max(N, (N + M) / 4)
    int max_free = 0;  ///< stop after so many free GPUs; 0: as many as the job has now (M ~ N)
    bool carry_idle = true;  ///< GPUs that a predecessor left idle may be used later on
    /// Improvements of each found plan (see refine.h); 0: the paper's algorithm.
    int refine_rounds = 3;
    /// A plan from scratch (initial_plans.h) replaces one that it beats by 1 %.
    bool fresh = true;
    int fresh_gpus = 1 << 30;  ///< such plans are made in rows of at most so many GPUs
  };
  Incremental() = default;
  explicit Incremental(Options options) : options_(options) {}
  ScaleTable solve(const Problem& problem, const Budget& budget) const override;

 private:
  Options options_;
};

}  // namespace swell::planner
