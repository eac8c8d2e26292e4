// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>

#include "core/planner/evaluator.h"
#include "core/planner/refine.h"

namespace swell::planner {

/// Returns the fastest plan of 1 to 4 chunks a stage on the GPUs of `skeleton`, whose layers do not
/// matter, under the interleaved schedule and within memory; it says that schedule. Each stage has
/// a layer, which a running job must have. Nothing where no plan takes less than `unless` seconds,
/// or with more passes than a job may have.
std::optional<Solution> chunked(Evaluator& evaluator, const plan::Layout& skeleton, double unless);

}  // namespace swell::planner
