// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/planner/refine.h"

namespace swell::planner {

/// Returns plans from scratch over at most `gpus`, fastest first, as further starts for refine():
/// incremental steps alone can stay in a local optimum near the current plan.
///  - On all GPUs, and on those of each type alone: the best symmetric plan, and one stage for each
///    node.
///  - On all GPUs: one stage for each type, with every TP degree.
///  - On at most 16 GPUs, also on the GPUs of each node alone and on all nodes but one: every split
///    into two stages; stages of equal speed with GPUs of every type; stages of equal groups, and
///    further stages from the remaining GPUs.
std::vector<Solution> initial_plans(Evaluator& evaluator, const Islands& gpus, int micro_batches,
                                    const Degrees& degrees);

}  // namespace swell::planner
