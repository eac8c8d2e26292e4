// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "profiler/kernel_timeline.h"
#include "profiler/nccl/totals.h"
#include "profiler/span.h"

namespace swell::profiler {

/// Everything known of one step.
struct TracedStep {
  Step step;
  int rank = 0;
  std::vector<nccl::Operation> operations;
  std::vector<Kernel> kernels;
  std::string note;  ///< why data is missing; empty: nothing is missing
};

/// Returns the step in Chrome's trace format, which Perfetto reads: one track for each host thread,
/// each stream, NCCL, and kernels. Regions that overlap without nesting get separate tracks. Times
/// are microseconds since the step began.
std::string chrome_trace(const TracedStep& traced);

/// Writes a file, completely or not at all.
Result<void> write_file(const std::string& path, const std::string& text);

/// Returns "trace.3.json" for "trace.json" and rank 3; without an extension it appends ".3".
std::string path_of_rank(const std::string& path, int rank);

}  // namespace swell::profiler
