// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/cluster.h"
#include "core/plan/layout.h"
#include "sim/judge/software.h"

namespace swell::sim::judge {

/// Returns the seconds of an all-reduce of `bytes` among `ranks` GPUs of one node, by a curve
/// fitted to measured all-reduces (2 to 8 A100 with NVSwitch, 1 MB to 1 GB; PCIe cards for slower
/// links).
double node_allreduce_s(int ranks, double bytes, double link_bytes_per_s);

/// Returns the seconds of an all-reduce of activations among the GPUs of one TP group.
double group_allreduce_s(const plan::GroupLayout& group, int tp, double bytes,
                         const cluster::Cluster& cluster);

/// Returns the seconds of the gradients' all-reduce among the groups of one stage, in pieces of the
/// software's bucket size. `bytes`: of one whole replica. Each rank of a group has a ring through
/// all groups; rings of one node share its cards.
double stage_allreduce_s(const plan::StageLayout& stage, double bytes,
                         const cluster::Cluster& cluster, const Software& software);

/// Returns the seconds to send `bytes` from one group to another over their link or network cards,
/// including a latency.
double send_s(const plan::GroupLayout& from, const plan::GroupLayout& to, double bytes,
              const cluster::Cluster& cluster);

/// Returns the seconds to gather `bytes` that are spread evenly over `nodes` x `per_node` GPUs; a
/// reduce-scatter takes as long.
double gather_s(int nodes, int per_node, double bytes, double link_bytes_per_s,
                double node_network_bytes_per_s);

}  // namespace swell::sim::judge
