// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster/fabric.h"
#include "core/result.h"

namespace swell::slurm {

/// What is near what, as the cluster knows it now.
struct FabricSnapshot {
  cluster::Fabric fabric;
  std::vector<std::uint64_t> memory_mib;  ///< of each node of the fabric
  std::vector<std::string> notes;         ///< what could not be read and was left out, a sentence each
};

/// The fabric of nodes with what they publish (the Extra field), and of Slurm's topology.conf where a topology
/// plugin uses it. By RPCs to slurmctld, so never under its locks. Built again only when what it is made of has
/// changed: nodes change with every job, what they publish hardly ever. Used by one thread.
class LiveFabric {
 public:
  /// Nothing where the fabric is the same as at the last call that gave one.
  Result<std::optional<FabricSnapshot>> load();

 private:
  std::time_t nodes_time_ = 0;
  std::string topology_conf_;             ///< where it is; empty: not asked yet, or not used
  std::optional<std::size_t> fingerprint_;
};

}  // namespace swell::slurm
