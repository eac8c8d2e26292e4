// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/cluster/fabric.h"
#include "slurm/records.h"

namespace swell::controller {

/// The usable nodes as planners take them, in the order of a view's nodes. Made anew only where the
/// fabric or the set of usable nodes changed. One thread at a time.
class Machines {
 public:
  /// `fabric` has the nodes' records in their order. Null where there are no usable nodes.
  std::shared_ptr<const cluster::Cluster> update(
      const std::vector<slurm::NodeRecord>& nodes,
      const std::shared_ptr<const cluster::Fabric>& fabric);

 private:
  std::shared_ptr<const cluster::Fabric> fabric_;
  std::vector<int> usable_;
  std::shared_ptr<const cluster::Cluster> known_;
};

/// Whether plans may use this node's GPUs: all are of one type that is known.
bool can_plan_on(const cluster::Cluster& machines, int node);

}  // namespace swell::controller
