// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/planner/refine.h"

namespace swell::planner {

/// Plans from scratch over at most `gpus`, fastest first, for refining, since incremental steps
/// alone can stay in the valley in which the current plan lies. Of all GPUs, and of those of each
/// type alone: the best symmetric plan, and one stage for each node; of all, one stage for each
/// type with every TP degree. Of few GPUs, those of each node alone and of all nodes but one too:
/// every cut in two stages; stages of equal speed over which every type is dealt; and stages of
/// equal groups, with what is left over dealt over further ones.
std::vector<Solution> initial_plans(Evaluator& evaluator, const Clumps& gpus, int micro_batches,
                                    const Degrees& degrees);

}  // namespace swell::planner
