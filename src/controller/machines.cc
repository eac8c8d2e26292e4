// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/machines.h"

#include <algorithm>
#include <utility>

namespace swell::controller {

std::shared_ptr<const cluster::Cluster> Machines::update(
    const std::vector<slurm::NodeRecord>& nodes,
    const std::shared_ptr<const cluster::Fabric>& fabric) {
  std::vector<int> usable;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].usable) usable.push_back(static_cast<int>(i));
  if (fabric == nullptr || usable.empty()) return nullptr;
  if (known_ != nullptr && fabric == fabric_ && usable == usable_) return known_;
  auto made = fabric->to_cluster_of(usable);
  known_ = made ? std::make_shared<const cluster::Cluster>(std::move(*made)) : nullptr;
  fabric_ = fabric;
  usable_ = std::move(usable);
  return known_;
}

bool can_plan_on(const cluster::Cluster& machines, int node) {
  const std::vector<int>& gpus = machines.node(node).gpus;
  return std::all_of(gpus.begin(), gpus.end(), [&](int type) {
    return type == gpus.front() && machines.type(type).name != cluster::kUnknownGpu;
  });
}

}  // namespace swell::controller
