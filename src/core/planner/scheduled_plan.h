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

/// Bytes of memory of the smallest GPU of each stage, as ScheduleProblem::limit_bytes.
std::vector<double> memory_of_stages(const perf::PerformanceModel& perf,
                                     const plan::Layout& layout);

/// Returns the fastest placement and schedule for the GPUs of `skeleton` within memory, among
/// plans of 1 to `max_chunks` chunks a stage. `name`: one of schedule::names(), or "search" for
/// search_schedule(), within `budget`. An error where the name is unknown, or nothing fits.
Result<ScheduledPlan> best_scheduled(const perf::PerformanceModel& perf,
                                     const plan::Layout& skeleton, std::string_view name,
                                     Executor& executor, const Budget& budget = {},
                                     int max_chunks = 4);

/// The same for a schedule that is given, which says the number of chunks.
Result<ScheduledPlan> with_schedule(const perf::PerformanceModel& perf,
                                    const plan::Layout& skeleton,
                                    const schedule::Schedule& schedule);

}  // namespace swell::planner
