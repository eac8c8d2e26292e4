// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/cluster/fabric.h"
#include "core/json.h"

namespace swell::tools {

struct ClusterOptions {
  std::string topology_conf, calibration;  ///< files; empty: the usual ones, if there
};

/// One line of the matrix: all pairs of one class of distance.
struct DistanceRow {
  std::string name;
  int distance = 0;
  long pairs = 0;           ///< of GPUs within a node, of nodes between them
  double min = 0, max = 0;  ///< between two GPUs, bytes a second
  double node_min = 0;      ///< between two nodes, all their ports; 0: within a node
  double latency_s = 0;     ///< 0: not measured
  std::string figures_from, places_from;
};

/// One row a class that has pairs, nearest first; within nodes one a kind of link. Looks at pairs
/// of neighbours in each group, not at all pairs.
std::vector<DistanceRow> distance_rows(const cluster::Fabric& fabric);

std::string cluster_text(const cluster::Fabric& fabric, const std::vector<std::string>& notes);
Json cluster_json(const cluster::Fabric& fabric, const std::vector<std::string>& notes);

/// What slurmctld and the files beside slurm.conf tell.
struct SiteFabric {
  cluster::Fabric fabric;
  std::map<std::string, std::string> addresses;  ///< NodeAddr by name
  std::vector<std::string> notes;                ///< what was passed over
};
Result<SiteFabric> load_fabric(const ClusterOptions& options);

/// Asks slurmctld for the nodes and prints. Returns the program's exit status.
int show_cluster(const ClusterOptions& options, bool json);

}  // namespace swell::tools
