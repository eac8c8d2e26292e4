// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/partition_limits.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "core/count_of.h"
#include "core/saturating.h"

namespace swell::controller {

PartitionLimits::PartitionLimits(const slurm::Snapshot& snapshot, const std::string& partition) {
  for (const slurm::PartitionRecord& each : snapshot.partitions) {
    if (each.name != partition) continue;
    memory_ = each.max_memory.mib > 0 ? each.max_memory : snapshot.max_memory;
    if (each.min_nodes > 1 || each.max_cpus_per_node > 0 || memory_.mib > 0) limited_ = &each;
  }
  if (limited_ == nullptr || limited_->max_cpus_per_node == 0) return;
  for (const slurm::JobRecord& job : snapshot.jobs)
    if (job.partition == partition && job.phase != slurm::JobPhase::ended && !job.nodes.empty())
      for (const std::string& node : job.nodes)
        cpus_used_[node] += job.cpus / static_cast<int>(job.nodes.size());
}

bool PartitionLimits::exceeds_memory_of_cpus(const policy::Resources& worker) const {
  return memory_.per_cpu && worker.memory_mib > saturating_product(memory_.mib, worker.cpus);
}

int PartitionLimits::workers_of_one(const policy::Resources& worker) const {
  constexpr int unlimited = std::numeric_limits<int>::max();
  if (!any()) return unlimited;
  if (limited_->min_nodes > 1 || exceeds_memory_of_cpus(worker)) return 0;
  if (memory_.mib == 0 || memory_.per_cpu || worker.memory_mib <= 0) return unlimited;
  return saturated_int(memory_.mib / worker.memory_mib);
}

int PartitionLimits::workers_on(const std::string& node, const policy::Resources& worker) const {
  constexpr int unlimited = std::numeric_limits<int>::max();
  if (!any() || limited_->max_cpus_per_node == 0) return unlimited;
  const auto used = cpus_used_.find(node);
  const int left = limited_->max_cpus_per_node - (used != cpus_used_.end() ? used->second : 0);
  return std::max(left, 0) / std::max(worker.cpus, 1);
}

void PartitionLimits::take(const std::string& node, int cpus) {
  if (any() && limited_->max_cpus_per_node > 0) cpus_used_[node] += cpus;
}

std::vector<policy::Grant> PartitionLimits::cut(const std::vector<policy::Grant>& grants,
                                                const policy::Resources& worker,
                                                const policy::ClusterView& view) const {
  std::vector<policy::Grant> pieces;
  const int of_one = workers_of_one(worker);
  for (const policy::Grant& grant : grants) {
    const std::string& node = view.nodes[static_cast<std::size_t>(grant.node)].name;
    int left = std::min(grant.lent.gpus / worker.gpus, workers_on(node, worker));
    while (left > 0 && of_one > 0) {
      policy::Grant piece = grant;
      piece.lent = worker * std::min(left, of_one);
      left -= of_one;
      pieces.push_back(piece);
    }
  }
  return pieces;
}

std::string PartitionLimits::why_none_on(const std::string& node,
                                         const policy::Resources& worker) const {
  if (!any()) return {};
  const std::string& name = limited_->name;
  if (limited_->min_nodes > 1)
    return fmt::format("MinNodes={} of partition {} lets no job of one node run, as companions are",
                       limited_->min_nodes, name);
  if (exceeds_memory_of_cpus(worker))
    return fmt::format("MaxMemPerCPU={} of partition {} is too low for {} MiB with {}", memory_.mib,
                       name, worker.memory_mib, count_of(worker.cpus, "CPU"));
  if (workers_of_one(worker) == 0)
    return fmt::format("MaxMemPerNode={} of partition {} is below the {} MiB of a worker",
                       memory_.mib, name, worker.memory_mib);
  if (workers_on(node, worker) == 0)
    return fmt::format("MaxCPUsPerNode={} of partition {} leaves less than the {} of a worker",
                       limited_->max_cpus_per_node, name, count_of(worker.cpus, "CPU"));
  return {};
}

PartitionLimits& LimitsByPartition::of(const std::string& partition) {
  const auto [found, is_new] = limits_.try_emplace(partition, snapshot_, partition);
  if (is_new)
    for (const LiveGrant& grant : outstanding_) {
      const auto job = jobs_.find(grant.parent);
      if (grant.offer.partition == partition &&
          (job == jobs_.end() || !job->second.companions.has_grant(grant.offer.nonce)))
        found->second.take(grant.offer.node, grant.offer.cpus);
    }
  return found->second;
}

}  // namespace swell::controller
