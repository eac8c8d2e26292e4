// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/truth.h"

#include <algorithm>

#include "core/perf/solve.h"
#include "sim/judge/judge.h"
#include "sim/judge/memory.h"
#include "sim/judge/profiling.h"
#include "sim/random.h"

namespace swell::sim {

namespace {

constexpr double kProfileNoise = 0.02;
constexpr int kProfileIterations = 5;
// MegaScale (NSDI '24) found 0.5 % of its machines about 10 % slower than the rest.
constexpr double kSlowNodes = 0.005;
constexpr double kSlowFactor = 1.1;

bool nodes_alike(const cluster::Cluster& cluster) {
  const cluster::Node& first = cluster.node(0);
  return cluster.interconnect().is_regular() &&
         std::all_of(cluster.nodes().begin(), cluster.nodes().end(),
                     [&](const cluster::Node& node) {
                       return node.gpus == first.gpus &&
                              node.network_bytes_per_s == first.network_bytes_per_s;
                     });
}

}  // namespace

Truth::Truth(const JobType& type, const cluster::Cluster& cluster, std::uint64_t seed,
             std::uint32_t job)
    : type_(type), cluster_(cluster), seed_(seed), job_(job), alike_(nodes_alike(cluster)) {
  Random random{seed, kHardware, job};
  hardware_ = judge::make_hardware(*type.model, cluster, type.software,
                                   [&](double spread) { return random.factor(spread); });
  for (std::size_t node = 0; node < cluster.nodes().size(); ++node)
    hardware_.node_slowness.push_back(
        Random{seed, kStragglers, node}.uniform() < kSlowNodes ? kSlowFactor : 1.0);
}

std::vector<int> Truth::shape_of(const plan::Layout& layout) const {
  std::vector<std::pair<int, int>> nodes;  // with the part of each; in order of appearance
  std::vector<int> racks;
  auto number = [](auto& seen, const auto& one) {
    const auto found = std::find(seen.begin(), seen.end(), one);
    if (found != seen.end()) return static_cast<int>(found - seen.begin());
    seen.push_back(one);
    return static_cast<int>(seen.size()) - 1;
  };
  std::vector<int> shape{layout.micro_batches};
  for (const plan::StageLayout& stage : layout.stages) {
    shape.insert(shape.end(), {-1, stage.layers, stage.tp});
    shape.insert(shape.end(), stage.chunks.begin(), stage.chunks.end());
    for (const plan::GroupLayout& group : stage.groups) {
      if (alike_)
        shape.insert(shape.end(), {number(nodes, std::pair(group.node, group.part)),
                                   number(racks, cluster_.node(group.node).rack),
                                   hardware_.of_node(group.node) > 1 ? 1 : 0});
      else shape.insert(shape.end(), {group.node, group.part});
      shape.insert(shape.end(), {group.type, group.local_batch});
    }
  }
  return shape;
}

double Truth::iteration_s(const plan::Layout& layout) {
  auto [found, is_new] = known_.try_emplace(shape_of(layout), 0.0);
  if (is_new) found->second = judge::execute(layout, cluster_, hardware_).seconds;
  return found->second;
}

bool Truth::fits(const plan::Layout& layout) const {
  return judge::fits(layout, cluster_, hardware_.model, hardware_.software);
}

perf::Profile Truth::observed(const plan::Layout& layout, const Reporting& reporting) const {
  Random noise{seed_, kNoise, job_};
  perf::Profile profile = judge::profile_of(layout, cluster_, hardware_);
  for (auto& seen : profile.groups)
    for (double* time :
         {&seen.fwd_s, &seen.fwd_commu_s, &seen.bwd_s, &seen.optim_s, &seen.commu_extra_s}) {
      double sum = 0;
      for (int i = 0; i < kProfileIterations; ++i)
        sum += *time * (1 + kProfileNoise * noise.normal());
      *time = sum / kProfileIterations;
    }
  const bool lies =
      reporting.lying_share > 0 && Random{seed_, kLies, job_}.uniform() < reporting.lying_share;
  if (reporting.a2_only || lies) {
    profile.layer_launch_s = 0;
    for (auto& seen : profile.groups) seen.head_fwd_s = seen.head_bwd_s = 0;
  }
  if (lies)
    for (auto& seen : profile.groups) seen.fwd_commu_s = seen.commu_extra_s = 0;
  return profile;
}

std::shared_ptr<const perf::Coefficients> Truth::profile(const plan::Layout& layout, double error,
                                                         const Reporting& reporting) const {
  auto solved = perf::solve(observed(layout, reporting), cluster_, {}, *type_.model);
  if (!solved) return nullptr;
  if (error > 0) {
    solved->plan_error = error;
    solved->plan_error_seed = Random{seed_, kPredictionError, job_}.next();
  }
  return std::make_shared<perf::Coefficients>(*solved);
}

}  // namespace swell::sim
