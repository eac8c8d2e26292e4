// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <string>
#include <vector>

#include "controller/elastic_job.h"
#include "controller/grant_book.h"
#include "core/policy/policy.h"
#include "slurm/records.h"

namespace swell::controller {

/// Limits of a partition on a job of one node, which Slurm applies to companions as to all jobs:
/// MinNodes, MaxMemPerNode, MaxMemPerCPU and MaxCPUsPerNode.
class PartitionLimits {
 public:
  /// `partition`: that of the companions, in `snapshot`, which must outlive this.
  PartitionLimits(const slurm::Snapshot& snapshot, const std::string& partition);

  /// Whether it limits companions at all.
  bool any() const noexcept { return limited_ != nullptr; }
  /// Returns the largest number of workers that one companion may have; 0: none may run.
  int workers_of_one(const policy::Resources& worker) const;
  /// The same for all companions that start now on the node together.
  int workers_on(const std::string& node, const policy::Resources& worker) const;
  /// Returns why no companion with one worker may run on the node, as "MaxMemPerNode=8000 of
  /// partition train is below the 16000 MiB of a worker"; empty: one may.
  std::string why_none_on(const std::string& node, const policy::Resources& worker) const;

  /// Returns one job's grants as its companions may be: one that is too large for one companion is
  /// cut into several, and workers for which a node has too few CPUs left are left out.
  std::vector<policy::Grant> cut(const std::vector<policy::Grant>& grants,
                                 const policy::Resources& worker,
                                 const policy::ClusterView& view) const;
  /// Counts the CPUs of a companion that will run on the node as used there.
  void take(const std::string& node, int cpus);

 private:
  bool exceeds_memory_of_cpus(const policy::Resources& worker) const;

  const slurm::PartitionRecord* limited_ = nullptr;
  slurm::MemoryLimit memory_;
  std::map<std::string, int> cpus_used_;  ///< by jobs of the partition, where MaxCPUsPerNode is set
};

/// The limits of the partitions in one snapshot, each read when it is first asked for. Offers that
/// Slurm's records do not show yet count as taken.
class LimitsByPartition {
 public:
  /// All must outlive this.
  LimitsByPartition(const slurm::Snapshot& snapshot, const JobTable& jobs,
                    const std::vector<LiveGrant>& outstanding)
      : snapshot_(snapshot), jobs_(jobs), outstanding_(outstanding) {}

  PartitionLimits& of(const std::string& partition);

 private:
  const slurm::Snapshot& snapshot_;
  const JobTable& jobs_;
  const std::vector<LiveGrant>& outstanding_;
  std::map<std::string, PartitionLimits> limits_;
};

}  // namespace swell::controller
