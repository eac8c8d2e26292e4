// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string_view>
#include <vector>

#include "core/planner/placement.h"
#include "core/planner/schedule_search.h"

namespace swell::planner {

/// A plan with its chunks and the schedule that runs it.
struct ScheduledPlan {
  plan::Layout layout;
  std::string placement;  ///< Placement::rule
  FoundSchedule found;
};

/// Returns the memory in bytes of the smallest GPU of each stage, for ScheduleProblem::limit_bytes.
std::vector<double> memory_of_stages(const perf::PerformanceModel& perf,
                                     const plan::Layout& layout);

/// Returns the fastest placement and schedule within memory for the GPUs of `skeleton`, among plans
/// of 1 to `max_chunks` chunks a stage. `name`: one of schedule::names(), or "search" for
/// search_schedule() within `budget`. Returns an error if the name is unknown or nothing fits.
Result<ScheduledPlan> best_scheduled(const perf::PerformanceModel& perf,
                                     const plan::Layout& skeleton, std::string_view name,
                                     Executor& executor, const Budget& budget = {},
                                     int max_chunks = 4);

/// Does the same for the given schedule, which sets the number of chunks.
Result<ScheduledPlan> with_schedule(const perf::PerformanceModel& perf,
                                    const plan::Layout& skeleton,
                                    const schedule::Schedule& schedule);

}  // namespace swell::planner
