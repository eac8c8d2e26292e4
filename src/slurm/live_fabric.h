// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

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
  bool same_memory = false;        ///< every node has as much memory as every other
  std::vector<std::string> notes;  ///< what could not be read and was left out, a sentence each
};

/// Nodes with what they publish (the Extra field), and Slurm's topology.conf where a topology plugin
/// uses it. By RPCs to slurmctld, so never under its locks. Used by one thread.
class LiveFabric {
 public:
  /// Nothing where no node record changed since the last call that gave a fabric.
  Result<std::optional<FabricSnapshot>> load();
  /// Makes the next load() give a fabric whatever changed, and read topology.conf again.
  void forget() { nodes_time_ = 0; }

 private:
  std::time_t nodes_time_ = 0;
};

}  // namespace swell::slurm
