// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/cluster/cluster.h"
#include "core/plan/layout.h"

namespace swell::sim::judge {

/// Seconds for one message over a wire: it starts slowly. `half_bytes`: the size of a message that
/// gets half of the wire's speed.
double message_s(double bytes, double bytes_per_s, double half_bytes);

/// An all-reduce among the GPUs of one group, step by step around its ring: every GPU passes on a
/// part of the tensor, first to add up, then to spread.
double group_allreduce_s(const plan::GroupLayout& group, int tp, double bytes, const cluster::Cluster& cluster);

/// The gradients' all-reduce among the groups of one stage: each rank of a group has a ring through
/// all groups; rings of one node share its network cards.
double stage_allreduce_s(const plan::StageLayout& stage, double bytes, const cluster::Cluster& cluster);

}  // namespace swell::sim::judge
