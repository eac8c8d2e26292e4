// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "tools/doctor/finding.h"
#include "tools/doctor/site.h"

namespace swell::tools::doctor {

/// Runs every check that applies to the site. Findings are in the order in which faults must be
/// fixed. Pure.
Findings examine(const Site& site);

// Groups of checks, each in a file of its own. REQUIRES: the configuration is known; for checks of
// partitions, slurmctld has answered.
/// Checks swell.conf, slurm.conf and the plugin files.
void check_installation(const Site& site, Findings& findings);
void check_expansion_qos(const Site& site, Findings& findings);
void check_expansion_partition(const Site& site, Findings& findings);
/// Checks the partitions that elastic jobs run in.
void check_partitions(const Site& site, Findings& findings);
void check_munge(const Site& site, Findings& findings);
/// Checks control port, limits and grace time.
void check_service(const Site& site, Findings& findings);

}  // namespace swell::tools::doctor
