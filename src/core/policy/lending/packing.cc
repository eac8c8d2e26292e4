// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/packing.h"

#include <algorithm>

namespace swell::policy {

namespace {

bool acceptable(const PendingDemand& demand, const ClusterView& view, NodeIndex node,
                const Resources& available) {
  const NodeView& candidate = view.nodes[static_cast<std::size_t>(node)];
  const bool needs_gpus = demand.per_node.gpus > 0 || demand.in_all.gpus > 0;
  if (needs_gpus && !demand.gpu_type.empty() && candidate.gpu_type != demand.gpu_type) return false;
  if (demand.excluded_nodes.contains(node) || demand.closed_nodes.contains(node)) return false;
  if (demand.whole_nodes && available != candidate.total) return false;
  if (demand.in_all.gpus > 0 && available.gpus < 1) return false;
  return available.covers(demand.per_node);
}

Resources at_most(const Resources& a, const Resources& b) {
  return {std::min(a.gpus, b.gpus), std::min(a.cpus, b.cpus), std::min(a.memory_mib, b.memory_mib)};
}

Resources at_least(const Resources& a, const Resources& b) {
  return {std::max(a.gpus, b.gpus), std::max(a.cpus, b.cpus), std::max(a.memory_mib, b.memory_mib)};
}

}  // namespace

std::optional<std::vector<Share>> place(const PendingDemand& demand, const ClusterView& view,
                                        const std::vector<Resources>& available,
                                        const std::vector<NodeIndex>& preference,
                                        const NodeSet& closed) {
  const std::vector<NodeIndex>& order =
      preference.empty() ? view.partitions[static_cast<std::size_t>(demand.partition)] : preference;

  std::vector<Share> shares;
  Resources missing = demand.in_all;
  auto take = [&](NodeIndex node) {
    const Resources& here = available[static_cast<std::size_t>(node)];
    Resources taken = demand.whole_nodes ? here : at_least(demand.per_node, at_most(missing, here));
    shares.push_back({node, taken});
    missing = at_least(missing - taken, Resources{});
  };
  auto done = [&] {
    return static_cast<int>(shares.size()) >= demand.min_nodes && missing == Resources{};
  };

  for (NodeIndex node : demand.required_nodes.nodes()) {
    if (closed.contains(node) ||
        !acceptable(demand, view, node, available[static_cast<std::size_t>(node)]))
      return std::nullopt;
    take(node);
  }
  for (NodeIndex node : order) {
    if (done()) break;
    if (static_cast<int>(shares.size()) >= demand.max_nodes) break;
    if (demand.required_nodes.contains(node) || closed.contains(node)) continue;
    if (acceptable(demand, view, node, available[static_cast<std::size_t>(node)])) take(node);
  }
  if (!done()) return std::nullopt;
  return shares;
}

}  // namespace swell::policy
