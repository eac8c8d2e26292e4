// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/planner/refine.h"

namespace swell::planner {

/// A few plans from scratch over at most `gpus`, best first, for refining: the best symmetric one of
/// all GPUs and of each type alone; one stage for each type, with every TP degree; one stage for
/// each node; of few GPUs, every cut in two stages. Incremental steps alone can stay in the valley in which the current plan lies.
std::vector<Found> fresh_starts(Evaluator& evaluator, const Clumps& gpus, int micro_batches, const Degrees& degrees);

}  // namespace swell::planner
