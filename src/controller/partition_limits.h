// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <string>
#include <vector>

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

 private:
  bool exceeds_memory_of_cpus(const policy::Resources& worker) const;

  const slurm::PartitionRecord* limited_ = nullptr;
  slurm::MemoryLimit memory_;
  std::map<std::string, int> cpus_used_;  ///< by jobs of the partition, where MaxCPUsPerNode is set
};

}  // namespace swell::controller
