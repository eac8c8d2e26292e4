// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>

#include "core/executor.h"
#include "core/planner/solver.h"

namespace swell::planner {

/// Suika's Algorithm 1: plans for a rising number of GPUs, each derived from one of the plans
/// before it.
class Incremental final : public Solver {
 public:
  struct Options {
    int window = 8;  ///< W: number of predecessors considered
    /// w: GPUs added in one step; 0: min(ceil(n / 16), max(8, n / 64, in whole nodes of 8)), where
    /// n = max(N, (N + M) / 4) for a job of N GPUs with M free ones.
    int group = 0;
    /// Number of free GPUs considered; 0: as many as the job has now (M ~ N).
    int max_free = 0;
    bool carry_idle = true;  ///< later plans may use GPUs that a predecessor left idle
    /// Rounds of refine() for each plan; 0: the paper's algorithm.
    int refine_rounds = 3;
    /// Also tries plans from scratch (initial_plans.h); one replaces the plan found if it is 1 %
    /// faster.
    bool fresh = true;
    int fresh_gpus = 1 << 30;            ///< rows with more GPUs do not try plans from scratch
    std::shared_ptr<Executor> executor;  ///< refines plans in parallel; same table
    /// Limits plans from scratch to the number of stages of Arena's best cell, and adds that cell's
    /// best plan to them (plan_search.h). Only for numbers of GPUs that have cells.
    bool prunes = false;
    bool searches = true;  ///< schedules of plans with chunks may be searched (chunked.h)
  };
  Incremental() = default;
  explicit Incremental(Options options) : options_(options) {}
  ScaleTable solve(const Problem& problem, const Budget& budget) const override;

 private:
  Options options_;
};

}  // namespace swell::planner
