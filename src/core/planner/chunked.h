// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>

#include "core/executor.h"
#include "core/planner/evaluator.h"
#include "core/planner/refine.h"

namespace swell::planner {

/// Returns the fastest plan of 1 to 4 chunks a stage on the GPUs of `skeleton` that fits memory,
/// with the name of its schedule. The layers of `skeleton` are ignored. The schedule is
/// interleaved, or zero-bubble if that gains 3 %; if `search` is given, also one from
/// search_schedule() if that gains 1 % over both: the search uses the threads of `search` and the
/// evaluator's limit. Each stage of the plan has a layer, as a running job requires. Returns
/// nothing if each plan takes at least `unless` seconds or has more passes than a job may have.
std::optional<Solution> chunked(Evaluator& evaluator, const plan::Layout& skeleton, double unless,
                                Executor* search);

}  // namespace swell::planner
