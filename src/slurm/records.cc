// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/records.h"

#include <unordered_set>

namespace swell::slurm {

namespace {

bool holds(const JobRecord& job) {
  return job.phase != JobPhase::pending && job.phase != JobPhase::ended;
}

}  // namespace

std::vector<JobRecord> left_between(const Snapshot& before, const Snapshot& now) {
  std::unordered_set<JobId> holding;
  for (const JobRecord& job : now.jobs)
    if (holds(job)) holding.insert(job.id);
  std::vector<JobRecord> left;
  for (const JobRecord& job : before.jobs)
    if (holds(job) && !holding.contains(job.id)) left.push_back(job);
  return left;
}

}  // namespace swell::slurm
