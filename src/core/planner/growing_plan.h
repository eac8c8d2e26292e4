// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>

#include "core/planner/evaluator.h"
#include "core/planner/refine.h"
#include "core/planner/solver.h"

namespace swell::planner {

/// A scale table under construction, to which free GPUs are added one by one. Holds the GPUs that a
/// solver may use so far and the best plan on them. Starts with the current plan on its own GPUs.
/// The evaluator must outlive it.
class GrowingPlan {
 public:
  GrowingPlan(const Problem& problem, Evaluator& evaluator);

  std::size_t free_gpus() const noexcept { return table_.order.size(); }
  /// Adds the `i`th free GPU in affinity order to `gpus`. The GPU stays idle until a better plan is
  /// found.
  void add_gpu(std::size_t i);
  /// Appends a row with `best` on `gpus` to the table.
  void write_row();
  /// Marks the table as incomplete: time was up before the last row.
  void give_up() noexcept { table_.complete = false; }
  /// Moves the table out. The object must not be used afterwards.
  ScaleTable take();

  Islands gpus;   ///< all GPUs that the plan may use
  Solution best;  ///< best plan on `gpus` so far

 private:
  const Problem& problem_;
  Evaluator& evaluator_;
  ScaleTable table_;
};

}  // namespace swell::planner
