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

/// Places the units of the model on `chunks` chunks of each stage of `skeleton`, whose layers are
/// ignored. Returns the placements that fit memory, fastest first:
///  - min-max: minimizes the largest cost of a chunk by bisection over costs; for each cost, the
///    chunks are filled one after the other. Exact if memory is not a limit. If it is, each chunk
///    gets only as much as would fit if all chunks of its stage held as much; this may miss
///    placements with unequal chunks on one stage.
///  - rule of FlexTrain: equally many layers on each chunk, counting empty layers at the last and
///    the third last place, which hold the heads of the last two MTP heads.
///  - even: equally many layers on each chunk, and all heads on the last.
/// Returns nothing if none fits or there are more stages than units.
std::vector<Placement> placements(const perf::PerformanceModel& perf, const plan::Layout& skeleton,
                                  int chunks);

}  // namespace swell::planner
