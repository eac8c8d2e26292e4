// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/records.h"

#include <algorithm>
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

std::map<JobId, std::vector<std::string>> keep_for_restarts(const Snapshot& before,
                                                            const Snapshot& now) {
  std::map<JobId, std::vector<std::string>> kept;
  for (const JobRecord& job : now.jobs)
    if (job.starts_again) kept[job.id] = job.nodes;
  if (kept.empty()) return kept;
  for (const JobRecord& job : before.jobs)
    if (const auto found = kept.find(job.id); found != kept.end())
      found->second.insert(found->second.end(), job.nodes.begin(), job.nodes.end());
  for (const auto& [id, nodes] : before.kept_nodes)
    if (const auto found = kept.find(id); found != kept.end())
      found->second.insert(found->second.end(), nodes.begin(), nodes.end());
  for (auto& [id, nodes] : kept) {
    std::sort(nodes.begin(), nodes.end());
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  }
  return kept;
}

}  // namespace swell::slurm
