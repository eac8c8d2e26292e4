// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "controller/config.h"
#include "controller/elastic_job.h"
#include "controller/grant_book.h"
#include "core/policy/view.h"
#include "slurm/records.h"

namespace swell::controller {

/// Slurm's records and the controller's jobs as a policy sees them. `outstanding` grants count as
/// taken, so that nothing is lent twice. Nodes with several GPU types are left out of lending.
policy::ClusterView build_view(const slurm::Snapshot& snapshot, const JobTable& jobs,
                               const std::vector<LiveGrant>& outstanding, const Config& config, double now);

}  // namespace swell::controller
