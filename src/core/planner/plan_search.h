// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <vector>

#include "core/planner/grid.h"

namespace swell::planner {

/// A stage whose GPUs and degrees are the same in every plan that has it.
struct FixedStage {
  std::size_t first = 0, end = 0;  ///< range of layer clusters
  int gpus = 0;
  int tp = 0;
};

/// Limits of Arena's search at run time (section 3.6), taken from its best cell.
struct Pruning {
  int stages = 0;                 ///< the only number of stages that is tried
  double most_bias = 0;           ///< bias of the frontier's most unbalanced plan
  std::vector<FixedStage> fixed;  ///< the stages of the frontier's plans
};

/// Returns the limits from the cell with the fastest plan; nothing if no cell has a plan.
std::optional<Pruning> pruning_by(const Grid& grid, const std::vector<CellPlans>& cells);

struct SearchedPlan {
  plan::Layout layout;   ///< has no stages if no plan fits memory
  double seconds = 0;    ///< iteration time by the performance model
  long evaluated = 0;    ///< plans whose time was estimated
  bool complete = true;  ///< false: time was up
};

/// Returns the fastest plan on all of `gpus`, which are of one type. Tries every partition of the
/// grid's clusters into stages, every power of two of GPUs for each stage, and every TP degree that
/// fits memory; with `pruning`, only plans within its limits. The time grows exponentially with the
/// number of clusters.
SearchedPlan search_plans(const perf::PerformanceModel& perf, int micro_batches, const Grid& grid,
                          const Islands& gpus, const std::optional<Pruning>& pruning,
                          const Budget& budget);

}  // namespace swell::planner
