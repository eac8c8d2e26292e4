// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <vector>

#include "controller/config.h"
#include "controller/elastic_job.h"
#include "controller/grant_book.h"
#include "controller/type_move.h"
#include "core/cluster/cluster.h"
#include "core/cluster/fabric.h"
#include "core/policy/view.h"
#include "slurm/records.h"

namespace swell::controller {

/// Slurm's records and the controller's jobs as a policy sees them. `outstanding` grants count as
/// taken, so that nothing is lent twice. Nodes with several GPU types are left out of lending.
/// `fabric` has the snapshot's nodes in their order; null: nobody knows what is near what.
/// `machines` has the usable ones (machines.h); null: no job can be planned for. Demands of `moves`
/// come first in the queue; null: no job moves. The caller adds the measured costs of changes of
/// plan.
policy::ClusterView build_view(const slurm::Snapshot& snapshot, const JobTable& jobs,
                               const std::vector<LiveGrant>& outstanding, const Config& config,
                               double now, std::shared_ptr<const cluster::Fabric> fabric = nullptr,
                               std::shared_ptr<const cluster::Cluster> machines = nullptr,
                               const TypeMoves* moves = nullptr);

}  // namespace swell::controller
