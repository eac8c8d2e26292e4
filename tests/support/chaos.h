// SPDX-License-Identifier: GPL-2.0-or-later
// Policies that decide at random, for tests of properties that hold for every policy.
#pragma once

#include "core/planner/symmetric.h"
#include "core/policy/rivals/simulated_policy.h"
#include "sim/basic_plan.h"
#include "sim/random.h"

namespace support {

/// Returns random numbers seeded by the view, since policies keep no state.
inline swell::sim::Random random_of(const swell::policy::ClusterView& view, std::uint64_t seed) {
  return swell::sim::Random{seed, swell::sim::kTests, static_cast<std::uint64_t>(view.now_s * 1e3)};
}

inline swell::planner::Islands islands_of(const swell::sim::GpuSet& set) {
  swell::planner::Islands islands;
  for (const auto& part : set) islands.push_back({part.node, 0, part.gpus});
  return islands;
}

/// Returns the best symmetric plan on `set` by the job's coefficients; it has no stages if none
/// fits.
inline swell::plan::Layout plan_on(const swell::policy::Training& training,
                                   const swell::sim::GpuSet& set,
                                   const swell::cluster::Cluster& cluster) {
  using namespace swell;
  const perf::PerformanceModel perf(*training.model, cluster, *training.coefficients);
  const int micro_batches = training.basic.micro_batches;
  planner::Evaluator evaluator(perf, training.model->global_batch / micro_batches);
  auto found = planner::best_symmetric(
      evaluator, islands_of(set), micro_batches,
      planner::degrees_for(training.model->heads, evaluator.micro_batch()), {});
  return found.seconds < 1e300 ? found.layout : plan::Layout{};
}

/// Lends any idle GPUs to any job, even GPUs that pending jobs wait for, and reclaims any companion
/// at any time. Half of its grants come with a plan.
class ChaosLender final : public swell::policy::SimulatedPolicy {
 public:
  explicit ChaosLender(std::uint64_t seed) : seed_(seed) {}
  swell::policy::Decisions decide(const swell::policy::ClusterView& view) const override {
    using namespace swell;
    auto random = random_of(view, seed_);
    policy::Decisions decisions;
    std::vector<plan::GpuMask> idle;
    for (const auto& node : view.nodes) idle.push_back(node.free_gpus);
    for (const auto& job : view.jobs) {
      bool leaves = false;
      for (const auto& companion : job.companions)
        if (!companion.leaving && random.below(4) == 0) {
          const policy::JobId needed = view.queue.empty() || random.below(2) == 0
                                           ? 0
                                           : view.queue[random.below(view.queue.size())].id;
          decisions.reclaims.push_back({job.id, companion.id, needed});
          leaves = true;
        }
      if (!job.may_grow || leaves || random.below(3) == 0) continue;
      std::map<int, plan::GpuMask> mine;
      for (std::size_t i = 0; i < job.basic_nodes.size(); ++i)
        mine[job.basic_nodes[i]] |= job.basic_gpu_masks[i];
      for (const auto& companion : job.companions) mine[companion.node] |= companion.gpus;
      for (std::size_t node = 0; node < idle.size(); ++node) {
        if (idle[node] == 0 || random.below(2) == 0) continue;
        const int wanted =
            1 + static_cast<int>(random.below(static_cast<std::size_t>(std::popcount(idle[node]))));
        const plan::GpuMask taken = sim::lowest(idle[node], wanted);
        idle[node] &= ~taken;
        mine[static_cast<int>(node)] |= taken;
        decisions.grants.push_back({job.id, static_cast<int>(node), job.per_worker * wanted});
      }
      if (random.below(2) == 0) continue;
      sim::GpuSet set;
      for (auto [node, gpus] : mine) set.push_back({node, gpus});
      if (auto layout = plan_on(*job.training, set, *view.machines); layout.pp() > 0)
        decisions.plans.push_back({job.id, layout});
    }
    return decisions;
  }
  swell::policy::SimulationTraits simulation_traits() const noexcept override {
    return {.redeployment = static_cast<swell::redeploy::Method>(seed_ % 4),
            .honours_consent = seed_ % 8 < 4};
  }

 private:
  std::uint64_t seed_;
};

/// Moves jobs around the cluster: stops some, starts some, with any number of GPUs.
class ChaosPlacer final : public swell::policy::SimulatedPolicy {
 public:
  explicit ChaosPlacer(std::uint64_t seed) : seed_(seed) {}
  swell::policy::Decisions decide(const swell::policy::ClusterView& view) const override {
    using namespace swell;
    auto random = random_of(view, seed_);
    policy::Decisions decisions;
    std::vector<plan::GpuMask> idle;
    for (const auto& node : view.nodes) idle.push_back(node.free_gpus);
    auto place = [&](policy::JobId id, const policy::Training& training) {
      if (!training.coefficients) return;
      sim::GpuSet set;
      for (std::size_t node = 0; node < idle.size(); ++node) {
        if (idle[node] == 0 || random.below(3) == 0) continue;
        set.push_back({static_cast<int>(node),
                       sim::lowest(idle[node], 1 + static_cast<int>(random.below(8)))});
      }
      const auto layout = set.empty() ? plan::Layout{} : plan_on(training, set, *view.machines);
      for (const auto& part : sim::gpus_of(layout))
        idle[static_cast<std::size_t>(part.node)] &= ~part.gpus;
      decisions.plans.push_back({id, layout});
    };
    for (const auto& job : view.jobs) {
      if (!job.may_grow || random.below(4) != 0) continue;
      for (std::size_t i = 0; i < job.basic_nodes.size(); ++i)
        idle[static_cast<std::size_t>(job.basic_nodes[i])] |= job.basic_gpu_masks[i];
      place(job.id, *job.training);
    }
    for (const auto& demand : view.queue)
      if (random.below(2) == 0) place(demand.id, *demand.training);
    return decisions;
  }
  swell::policy::SimulationTraits simulation_traits() const noexcept override {
    return {.role = swell::policy::Role::replaces,
            .round_s = 60,
            .redeployment = swell::redeploy::Method::checkpoint};
  }

 private:
  std::uint64_t seed_;
};

}  // namespace support
