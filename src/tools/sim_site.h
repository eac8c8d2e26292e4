// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/cluster/cluster.h"
#include "sim/experiment.h"
#include "sim/trace.h"

namespace swell::tools {

/// The cluster that this program runs on, and the GPU jobs of its last days.
struct Site {
  std::shared_ptr<const cluster::Cluster> cluster;
  sim::TraceFile trace;
  std::vector<std::string> notes;  ///< what is not known of the cluster, one sentence each
};

/// Reads the nodes from slurmctld and the jobs submitted in the last `days` days from `sacct`.
/// `gpu_type`: type of GPUs for which Slurm names none that the catalogue has; empty: none is
/// assumed, and the error names the option.
Result<Site> load_site(int days, const std::string& gpu_type);

/// One page: what each policy but fifo brings the site, all in all and by account. `days`: of
/// load_site().
std::string site_page(const Site& site, const sim::Experiment& experiment,
                      const sim::Results& results, int days);

}  // namespace swell::tools
