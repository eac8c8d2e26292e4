// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>

#include "core/planner/evaluator.h"
#include "core/planner/refine.h"
#include "core/planner/solver.h"

namespace swell::planner {

/// A scale table while it is made, one free GPU after the other: what a solver may use so far, and
/// the best plan for it. Starts with the current plan on its own GPUs. The evaluator outlives it.
class GrowingPlan {
 public:
  GrowingPlan(const Problem& problem, Evaluator& evaluator);

  std::size_t free_gpus() const noexcept { return table_.order.size(); }
  /// Adds the `i`th free GPU in affinity order to `gpus`; until something better is found, it stays
  /// idle.
  void add_gpu(std::size_t i);
  /// Writes the row of `best` on `gpus`.
  void write_row();
  /// Says that time was up before the last row.
  void give_up() noexcept { table_.complete = false; }
  /// The table; the object is used up.
  ScaleTable take();

  Clumps gpus;    ///< all that the plan may use
  Solution best;  ///< on these, so far

 private:
  const Problem& problem_;
  Evaluator& evaluator_;
  ScaleTable table_;
};

}  // namespace swell::planner
