// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "slurm/records.h"
#include "tools/job_rows.h"

namespace swell::tools {

/// GPUs of a cluster, by what they do.
struct GpuUse {
  int all = 0, busy = 0, lent = 0, waiting_jobs = 0;
  int idle() const noexcept { return all - busy; }
};
/// Counts the GPUs of usable nodes, and those that jobs still hold on other nodes. Companions' GPUs
/// count as lent.
GpuUse gpu_use(const slurm::Snapshot& snapshot);

/// Returns a screen of `swell top`: a line about the cluster, a bar, a table of elastic jobs.
/// Has at most `height` lines of at most `width` characters. `metrics`: the controller's answer;
/// empty: it did not answer.
std::string top_screen(const GpuUse& use, const std::vector<JobRow>& rows, const Json& metrics,
                       std::size_t width, std::size_t height);

/// Returns the same as JSON, for programs.
Json top_json(const GpuUse& use, const std::vector<JobRow>& rows, const Json& metrics);

}  // namespace swell::tools
