// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/quotas.h"

#include <algorithm>
#include <fmt/format.h>

namespace swell::controller {

bool has_quotas(const Config& config) {
  return !config.max_lent_by_account.empty() || !config.max_lent_by_qos.empty();
}

Quotas::Quotas(const Config& config, const slurm::Snapshot& snapshot, const JobTable& jobs,
               const std::vector<LiveGrant>& outstanding) {
  if (!has_quotas(config)) return;
  for (const slurm::JobRecord& record : snapshot.jobs) {
    const auto job = jobs.find(record.id);
    if (job == jobs.end()) continue;
    add("account", record.account, config.max_lent_by_account, record.id);
    add("QOS", record.qos, config.max_lent_by_qos, record.id);
    for (Group* group : groups_of(record.id))
      for (const Companion& companion : job->second.companions) {
        group->lent += companion.gpus.count;
        if (!companion.is_leaving()) group->staying += companion.gpus.count;
      }
  }
  for (const LiveGrant& grant : outstanding) {
    const auto job = jobs.find(grant.parent);
    if (job == jobs.end() || job->second.companions.has_grant(grant.offer.nonce)) continue;
    for (Group* group : groups_of(grant.parent)) group->lent += grant.offer.gpus;
  }
}

void Quotas::add(const char* kind, const std::string& name, const control::LentLimits& limits,
                 JobId job) {
  const std::optional<int> max = limits.of(name);
  if (!max) return;
  const std::string words = fmt::format("{} {}", kind, name);
  Group& group = groups_[words];
  group.words = words;
  group.max = *max;
  groups_by_job_[job].push_back(&group);
}

const std::vector<Quotas::Group*>& Quotas::groups_of(JobId job) const {
  static const std::vector<Group*> none;
  const auto found = groups_by_job_.find(job);
  return found != groups_by_job_.end() ? found->second : none;
}

std::optional<int> Quotas::room(JobId job) const {
  std::optional<int> least;
  for (const Group* group : groups_of(job))
    least = std::min(least.value_or(group->max), std::max(group->max - group->lent, 0));
  return least;
}

bool Quotas::take(JobId job, int gpus) {
  if (const auto left = room(job); left && *left < gpus) return false;
  for (Group* group : groups_of(job)) group->lent += gpus;
  return true;
}

std::string Quotas::why_full(JobId job) const {
  for (const Group* group : groups_of(job))
    if (group->lent >= group->max)
      return fmt::format("{} may have {} lent GPUs, and has {}", group->words, group->max,
                         group->lent);
  return {};
}

int Quotas::excess(JobId job) const {
  int most = 0;
  for (const Group* group : groups_of(job)) most = std::max(most, group->staying - group->max);
  return most;
}

void Quotas::leaves(JobId job, int gpus) {
  for (Group* group : groups_of(job)) group->staying -= gpus;
}

}  // namespace swell::controller
