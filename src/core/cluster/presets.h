// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string_view>

#include "core/cluster/cluster.h"

namespace swell::cluster {

/// Returns a cluster of equal nodes n1, n2, ...; `nodes_per_rack` 0 puts all into one rack.
/// `network_bytes_per_s`: all cards of one node together.
Cluster uniform_cluster(std::string name, const GpuType& type, int nodes, int gpus_per_node,
                        double network_bytes_per_s, int nodes_per_rack = 0,
                        double cross_rack_factor = 1.0);

/// Returns the cluster for a name: "8x8-h100" (Suika's Cluster-A: 8 nodes of 8 H100, 8 x 400 Gbit/s
/// each), "128x8-h100" (its Cluster-B: 16 nodes a rack, half the bandwidth between racks), any
/// "NxG-TYPE" with the catalogue's types and the same network, or several of these,
/// "4x8-h100+4x8-l20". The error lists the possible names.
Result<Cluster> preset(std::string_view name);

}  // namespace swell::cluster
