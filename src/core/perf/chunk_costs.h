// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/perf/performance_model.h"
#include "core/schedule/evaluate.h"

namespace swell::perf {

/// Returns the costs of the passes of each chunk of `layout`, for schedule::evaluate(). A stage is
/// as slow as its slowest group, and as full as its fullest. Weight gradients take the observed
/// share of a backward pass, or half. `perf` decides whether messages have a cost.
schedule::Costs chunk_costs(const PerformanceModel& perf, const plan::Layout& layout);

/// Does the same for chunks that hold `loads`, indexed by stage * chunks + chunk, in place of the
/// chunks that the layout lists.
schedule::Costs chunk_costs(const PerformanceModel& perf, const plan::Layout& layout,
                            const std::vector<models::Load>& loads);

}  // namespace swell::perf
