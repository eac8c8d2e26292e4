// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>

#include "core/executor.h"
#include "core/planner/evaluator.h"
#include "core/planner/refine.h"

namespace swell::planner {

/// Returns the fastest plan of 1 to 4 chunks a stage on the GPUs of `skeleton`, whose layers do not
/// matter, within memory, under a schedule that it says: interleaved, zero-bubble where that gains
/// 3 %, or, with `search` and where that gains 1 % over both, one that search_schedule() finds on
/// its threads within the evaluator's limit. Each stage has a layer, which a running job must have.
/// Nothing where no plan takes less than `unless` seconds, or with more passes than a job may have.
std::optional<Solution> chunked(Evaluator& evaluator, const plan::Layout& skeleton, double unless,
                                Executor* search);

}  // namespace swell::planner
