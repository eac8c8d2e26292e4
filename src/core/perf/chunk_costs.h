// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/perf/performance_model.h"
#include "core/schedule/evaluate.h"

namespace swell::perf {

/// Costs of the passes of each chunk of `layout`, for schedule::evaluate(): a stage is as slow as
/// its slowest group, and as full as its fullest. The weights' gradients are half of a backward
/// pass. Messages cost what `perf` counts them as.
schedule::Costs chunk_costs(const PerformanceModel& perf, const plan::Layout& layout);

/// The same where the chunks hold `loads`, by stage * chunks + chunk, whatever the layout lists.
schedule::Costs chunk_costs(const PerformanceModel& perf, const plan::Layout& layout,
                            const std::vector<models::Load>& loads);

}  // namespace swell::perf
