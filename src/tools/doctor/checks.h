// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "tools/doctor/finding.h"
#include "tools/doctor/site.h"

namespace swell::tools::doctor {

/// Every check that makes sense for the site, in the order in which faults are best mended. Pure.
Findings examine(const Site& site);

// The groups, each in a file of its own. They expect that the configuration is known; those of
// partitions, that slurmctld answered.
void check_installation(const Site& site,
                        Findings& findings);  ///< swell.conf, slurm.conf, plugin files
void check_expansion_qos(const Site& site, Findings& findings);
void check_expansion_partition(const Site& site, Findings& findings);
void check_partitions(const Site& site, Findings& findings);  ///< those that elastic jobs run in
void check_munge(const Site& site, Findings& findings);
void check_service(const Site& site, Findings& findings);  ///< control port, limits, grace

}  // namespace swell::tools::doctor
