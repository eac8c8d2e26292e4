// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

#include "core/perf/performance_model.h"
#include "core/plan/layout.h"

namespace swell::planner {

/// A way to place the units of a model on the chunks of a plan.
struct Placement {
  plan::Layout layout;  ///< the plan with its chunks listed
  std::string rule;     ///< "min-max", "rule of FlexTrain" or "even"
  /// Seconds of one iteration under the interleaved schedule, which is 1F1B for one chunk.
  double seconds = 0;
};

/// Places the units of the model on `chunks` chunks of each stage of `skeleton`, whose layers do
/// not matter, and returns the ways that fit memory, the fastest first:
///  - min-max: the largest cost of a chunk is minimal. Exact, by dynamic programming: how many
///  units
///    the chunks up to each one can take at most, for the smallest cost that takes them all.
///  - rule of FlexTrain: as many layers on each chunk, and empty layers at the last and the third
///    last place, which hold the heads of the last two MTP heads.
///  - even: as many layers on each chunk, and all heads on the last.
/// Empty where none fits, or there are more stages than units.
std::vector<Placement> placements(const perf::PerformanceModel& perf, const plan::Layout& skeleton,
                                  int chunks);

}  // namespace swell::planner
