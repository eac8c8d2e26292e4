// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace swell::sim {

/// One job that a real cluster once ran.
struct TraceJob {
  double submit_s = 0;  ///< since the trace's begin
  double gpus = 1;
  double duration_s = 0;
};
using Trace = std::vector<TraceJob>;

/// Reads a CSV file's text with the columns submit_s, num_gpus and duration_s, in any order and
/// among others; sorted by submission. The error names line and column.
Result<Trace> trace_from_csv(std::string_view text);

/// Settings of a synthetic trace.
struct Generator {
  double hours = 8;
  double jobs_per_hour = 20;
  /// Mean of the durations, which are log-normal: most are short, a few take most of the time.
  double mean_duration_s = 3600;
  /// The rate of arrivals varies over the day by 80 %; false: constant (Poisson).
  bool diurnal = false;
};
Trace generate(const Generator& generator, std::uint64_t seed);

}  // namespace swell::sim
