// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/basic_plan.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/planner/symmetric.h"

namespace swell::sim {

namespace {

planner::Islands islands_of(const GpuSet& set, const cluster::Cluster& cluster) {
  planner::Islands islands;
  for (const NodeGpus& part : set)
    for (plan::GpuMask left = part.gpus; left != 0; left &= left - 1) {
      const int index = std::countr_zero(left);
      planner::add_to(islands, part.node, cluster.type_of({part.node, index}),
                      plan::GpuMask{1} << index);
    }
  return islands;
}

}  // namespace

int count(const GpuSet& set) noexcept {
  int sum = 0;
  for (const NodeGpus& part : set) sum += std::popcount(part.gpus);
  return sum;
}

plan::GpuMask lowest(plan::GpuMask from, int wanted) noexcept {
  plan::GpuMask taken = 0;
  for (; wanted > 0 && from != 0; --wanted, from &= from - 1) taken |= from & (~from + 1);
  return taken;
}

GpuSet gpus_of(const plan::Layout& layout) {
  std::map<int, plan::GpuMask> nodes;
  for (const plan::StageLayout& stage : layout.stages)
    for (const plan::GroupLayout& group : stage.groups) nodes[group.node] |= group.gpus;
  GpuSet set;
  for (auto [node, gpus] : nodes) set.push_back({node, gpus});
  return set;
}

bool has_type(const cluster::Cluster& cluster, int node, int gpu_type) noexcept {
  return cluster.node(node).gpus.front() == gpu_type;
}

std::optional<Spread> spread_of(int gpus, const cluster::Cluster& cluster, int gpu_type) {
  std::vector<int> sizes;
  for (int node = 0; node < static_cast<int>(cluster.nodes().size()); ++node)
    if (has_type(cluster, node, gpu_type))
      sizes.push_back(static_cast<int>(cluster.node(node).gpus.size()));
  for (int nodes = 1; nodes <= static_cast<int>(sizes.size()); ++nodes) {
    if (gpus % nodes != 0) continue;
    const auto large =
        std::count_if(sizes.begin(), sizes.end(), [&](int size) { return size >= gpus / nodes; });
    if (large >= nodes) return Spread{nodes, gpus / nodes};
  }
  return std::nullopt;
}

std::optional<GpuSet> first_gpus(int gpus, const cluster::Cluster& cluster, int gpu_type) {
  const auto spread = spread_of(gpus, cluster, gpu_type);
  if (!spread) return std::nullopt;
  GpuSet set;
  for (int node = 0; static_cast<int>(set.size()) < spread->nodes; ++node)
    if (has_type(cluster, node, gpu_type) &&
        static_cast<int>(cluster.node(node).gpus.size()) >= spread->per_node)
      set.push_back({node, lowest(~plan::GpuMask{0}, spread->per_node)});
  return set;
}

std::optional<plan::Layout> basic_layout(const JobType& type, const GpuSet& gpus,
                                         const cluster::Cluster& cluster) {
  const perf::PerformanceModel perf(*type.model, cluster, *type.expected);
  planner::Evaluator evaluator(perf, type.model->global_batch / type.micro_batches);
  planner::Islands left = islands_of(gpus, cluster);
  plan::Layout layout{type.micro_batches, {}};
  for (int i = 0; i < type.pp; ++i) {
    plan::StageLayout stage{0, type.tp, {}};
    if (planner::take_groups(stage, left, type.tp, type.dp) < type.dp) return std::nullopt;
    layout.stages.push_back(std::move(stage));
  }
  if (!evaluator.balance(layout)) return std::nullopt;
  return layout;
}

std::optional<plan::Layout> best_symmetric_layout(const JobType& type,
                                                  const perf::Coefficients& coefficients,
                                                  const GpuSet& gpus,
                                                  const cluster::Cluster& cluster) {
  const perf::PerformanceModel perf(*type.model, cluster, coefficients);
  planner::Evaluator evaluator(perf, type.model->global_batch / type.micro_batches);
  const auto degrees = planner::degrees_for(*type.model, evaluator.micro_batch());
  auto found = planner::best_symmetric(evaluator, islands_of(gpus, cluster), type.micro_batches,
                                       degrees, {});
  if (!std::isfinite(found.seconds)) return std::nullopt;
  return std::move(found.layout);
}

}  // namespace swell::sim
