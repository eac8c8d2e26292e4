// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "core/perf/profile.h"
#include "core/result.h"
#include "profiler/rank_profile.h"

namespace swell::profiler {

/// The profile that perf::solve() takes, of what the ranks of a running plan report: times are the
/// mean of a TP group's ranks, bytes the largest. Groups of which no rank has reported are left
/// out. An error: a rank of a group that the plan does not have, or of another number of
/// micro-batches, or no rank at all.
Result<perf::Profile> assemble(const plan::Plan& plan, const std::vector<RankProfile>& ranks);

}  // namespace swell::profiler
