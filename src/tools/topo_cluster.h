// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/cluster/fabric.h"
#include "core/json.h"

namespace swell::tools {

struct ClusterOptions {
  std::string topology_conf, calibration;  ///< paths; empty: the usual files, if they exist
};

/// One line of the table: all pairs of one distance.
struct DistanceRow {
  std::string name;
  int distance = 0;
  long pairs = 0;           ///< pairs of GPUs within a node, otherwise of nodes
  double min = 0, max = 0;  ///< bytes a second between two GPUs
  double node_min = 0;      ///< bytes a second between two nodes, all their ports; 0: within a node
  double latency_s = 0;     ///< 0: not measured
  std::string figures_from, places_from;
};

/// Makes a row for each distance that has pairs, nearest first; within nodes, for each kind of
/// link. Considers pairs of neighbours in each group, not all pairs.
std::vector<DistanceRow> distance_rows(const cluster::Fabric& fabric);

std::string cluster_text(const cluster::Fabric& fabric, const std::vector<std::string>& notes);
Json cluster_json(const cluster::Fabric& fabric, const std::vector<std::string>& notes);

/// The site's fabric from slurmctld and the files beside slurm.conf.
struct SiteFabric {
  cluster::Fabric fabric;
  std::map<std::string, std::string> addresses;  ///< NodeAddr by node name
  std::vector<std::string> notes;                ///< what was left out, one sentence each
};
Result<SiteFabric> load_fabric(const ClusterOptions& options);

/// Loads the nodes from slurmctld and prints the fabric. Returns the program's exit status.
int show_cluster(const ClusterOptions& options, bool json);

}  // namespace swell::tools
