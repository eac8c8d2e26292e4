// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/cluster/cluster.h"
#include "core/plan/layout.h"

namespace swell::planner {

/// Sorts `free` into the order in which a job that runs `current` takes GPUs: by falling affinity
/// (the largest effective bandwidth to any of its GPUs), then by rack, node and GPU. Suika, 3.2.1.
std::vector<cluster::GpuRef> affinity_order(const plan::Layout& current,
                                            std::vector<cluster::GpuRef> free,
                                            const cluster::Cluster& cluster);

/// Returns all GPUs of `cluster` that `layout` does not use.
std::vector<cluster::GpuRef> unused(const plan::Layout& layout, const cluster::Cluster& cluster);

}  // namespace swell::planner
