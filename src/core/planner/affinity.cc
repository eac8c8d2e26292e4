// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/affinity.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

namespace swell::planner {

std::vector<cluster::GpuRef> affinity_order(const plan::Layout& current,
                                            std::vector<cluster::GpuRef> free,
                                            const cluster::Cluster& cluster) {
  // Bandwidth depends only on node, allocation and type: one GPU represents all equal ones.
  std::map<std::tuple<int, int, int>, cluster::GpuRef> held;
  for (const plan::StageLayout& stage : current.stages)
    for (const plan::GroupLayout& group : stage.groups)
      held.try_emplace({group.node, group.part, group.type},
                       cluster::GpuRef{group.node, std::countr_zero(group.gpus), group.part});
  std::map<std::tuple<int, int, int>, double> nearness;
  auto affinity = [&](cluster::GpuRef gpu) {
    const auto [found, fresh] =
        nearness.try_emplace({gpu.node, gpu.part, cluster.type_of(gpu)}, 0.0);
    if (fresh)
      for (const auto& [kind, one] : held)
        found->second = std::max(found->second, cluster.effective_bandwidth(gpu, one));
    return found->second;
  };
  std::vector<std::tuple<double, int, int, int, int>> keys;
  for (const cluster::GpuRef gpu : free)
    keys.emplace_back(-affinity(gpu), cluster.node(gpu.node).rack, gpu.node, gpu.part, gpu.index);
  std::sort(keys.begin(), keys.end());
  free.clear();
  for (const auto& [bandwidth, rack, node, part, index] : keys) free.push_back({node, index, part});
  return free;
}

std::vector<cluster::GpuRef> unused(const plan::Layout& layout, const cluster::Cluster& cluster) {
  std::vector<plan::GpuMask> used(cluster.nodes().size(), 0);
  for (const plan::StageLayout& stage : layout.stages)
    for (const plan::GroupLayout& group : stage.groups)
      used[static_cast<std::size_t>(group.node)] |= group.gpus;
  std::vector<cluster::GpuRef> free;
  for (int node = 0; node < static_cast<int>(used.size()); ++node)
    for (int index = 0; index < static_cast<int>(cluster.node(node).gpus.size()); ++index)
      if ((used[static_cast<std::size_t>(node)] >> index & 1) == 0) free.push_back({node, index});
  return free;
}

}  // namespace swell::planner
