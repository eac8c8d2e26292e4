// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/loop_state.h"

#include <algorithm>

namespace swell::controller {

const slurm::JobRecord* LoopState::record_of(JobId job) const {
  const auto found = std::find_if(snapshot.jobs.begin(), snapshot.jobs.end(),
                                  [&](const slurm::JobRecord& each) { return each.id == job; });
  return found != snapshot.jobs.end() ? &*found : nullptr;
}

void LoopState::remember(const ElasticJob& job) {
  saved.jobs[job.id] = {static_cast<std::int64_t>(job.started),
                        job.training,
                        job.limits.is_paused(),
                        job.limits.max_gpus(),
                        job.replans.is_owners() ? job.replans.companions() : std::vector<JobId>{},
                        job.pauses};
}

}  // namespace swell::controller
