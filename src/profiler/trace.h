// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "profiler/kernel_timeline.h"
#include "profiler/nccl/totals.h"
#include "profiler/span.h"

namespace swell::profiler {

/// All that is known of one step.
struct TracedStep {
  Step step;
  int rank = 0;
  std::vector<nccl::Operation> operations;
  std::vector<Kernel> kernels;
  std::string note;  ///< why something is missing; empty: nothing is
};

/// The step in Chrome's trace format, which Perfetto reads: a track a host thread, and for each
/// stream, for NCCL, and for kernels. Regions that overlap without one being within the other stand
/// on tracks of their own. Times are microseconds since the step began.
std::string chrome_trace(const TracedStep& traced);

/// Writes a file that is whole or not there.
Result<void> write_file(const std::string& path, const std::string& text);

/// "trace.json" of rank 3 is "trace.3.json"; without an extension ".3" is put behind it.
std::string path_of_rank(const std::string& path, int rank);

}  // namespace swell::profiler
