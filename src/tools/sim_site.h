// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/cluster/cluster.h"
#include "sim/experiment.h"
#include "sim/trace.h"

namespace swell::tools {

/// A cluster and the GPU jobs that were submitted to it.
struct Site {
  std::shared_ptr<const cluster::Cluster> cluster;
  sim::TraceFile trace;
  std::string which;               ///< describes these jobs, such as "submitted in the last day"
  std::vector<std::string> notes;  ///< unknown facts of the cluster, one sentence each
};

/// Reads the nodes from slurmctld, and the jobs from the file `trace` or, if that is empty,
/// those submitted in the last `days` days from `sacct`. `gpu_type`: the type of GPUs for which
/// Slurm names no type of the catalogue; empty: none is assumed, and the error names the
/// option.
Result<Site> load_site(int days, const std::string& gpu_type, const std::string& trace);

/// Reads the jobs of the file `trace`, for `cluster`.
Result<Site> site_of_file(cluster::Cluster cluster, const std::string& trace);

/// Returns a page: what each policy except fifo brings the site, in all and by account.
std::string site_page(const Site& site, const sim::Experiment& experiment,
                      const sim::Results& results);

}  // namespace swell::tools
