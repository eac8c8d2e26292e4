// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <vector>

#include "core/plan/layout.h"
#include "sim/workload.h"

namespace swell::sim {

/// GPUs of one node.
struct NodeGpus {
  int node = 0;
  plan::GpuMask gpus = 0;
  friend bool operator==(const NodeGpus&, const NodeGpus&) = default;
};
using GpuSet = std::vector<NodeGpus>;  ///< rising by node, each node once

int count(const GpuSet& set) noexcept;
/// The lowest `wanted` GPUs of `from`; all where it has fewer.
plan::GpuMask lowest(plan::GpuMask from, int wanted) noexcept;
GpuSet gpus_of(const plan::Layout& layout);

/// Whether a node has GPUs of that type; a node has GPUs of one type.
bool has_type(const cluster::Cluster& cluster, int node, int gpu_type) noexcept;

/// Layout of a demand on nodes of one type: on one node where it fits there, otherwise the same
/// number of GPUs on each of the fewest whole nodes.
struct Spread {
  int nodes = 1;
  int per_node = 1;
};
std::optional<Spread> spread_of(int gpus, const cluster::Cluster& cluster, int gpu_type);

/// The GPUs that a demand for `gpus` would get if the cluster were empty; nothing where it is too
/// small.
std::optional<GpuSet> first_gpus(int gpus, const cluster::Cluster& cluster, int gpu_type);

/// The plan of `type` on `gpus`, balanced; nothing where it does not fit memory or TP groups would
/// span nodes.
std::optional<plan::Layout> basic_layout(const JobType& type, const GpuSet& gpus,
                                         const cluster::Cluster& cluster);

/// The fastest symmetric plan on at most `gpus`, by the coefficients: for a program that starts
/// anew with what it has. Nothing where no plan fits.
std::optional<plan::Layout> best_symmetric_layout(const JobType& type,
                                                  const perf::Coefficients& coefficients,
                                                  const GpuSet& gpus,
                                                  const cluster::Cluster& cluster);

}  // namespace swell::sim
