// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <string>

#include "core/perf/performance_model.h"
#include "core/planner/scale_table.h"

namespace swell::tools {

/// Request of `swell plan --grid`.
struct GridRequest {
  int micro_batches = 1;
  std::string sizes;  ///< "4/8/12"; empty: powers of two
  /// Source of the times of types that `costs` does not know.
  planner::ScaleSource source = planner::ScaleSource::unknown;
  const perf::NodeCosts* costs = nullptr;
  bool cells = false, json = false;
  std::function<bool()> expired;
};

/// Prints the best plan of a job for each type and number of GPUs; returns the exit status.
int print_grid(const perf::PerformanceModel& perf, const GridRequest& request);

}  // namespace swell::tools
