// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "controller/config.h"
#include "controller/elastic_job.h"
#include "core/policy/growth_hold.h"
#include "core/policy/view.h"
#include "slurm/records.h"

namespace swell::controller {

/// Returns what the growth of a job depends on (policy::growth_hold()). `seen`: its view, as far as
/// it says what is known of its training; `view`: of the cluster, at view.now_s; `taken`: when
/// Slurm's records were read, by its clock.
policy::GrowthFacts growth_facts(const ElasticJob& job, const slurm::JobRecord& record,
                                 const policy::ElasticJobView& seen,
                                 const policy::ClusterView& view, const Config& config,
                                 std::time_t taken);

}  // namespace swell::controller
