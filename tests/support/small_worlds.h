// SPDX-License-Identifier: GPL-2.0-or-later
// Small random clusters with workloads, for the simulator's tests.
#pragma once

#include <memory>

#include "core/cluster/presets.h"
#include "sim/random.h"
#include "sim/simulation.h"
#include "support/chaos.h"

namespace support {

struct SmallWorld {
  std::shared_ptr<const swell::cluster::Cluster> cluster;
  swell::sim::Workload workload;
  swell::sim::Setup setup;
  std::unique_ptr<swell::policy::SimulatedPolicy> policy;
  std::unique_ptr<swell::sim::QueueOrder> order;
};

/// Returns job types that fit `cluster`, each with its consent for half of its GPUs. Cached, since
/// tuning is slow.
inline const std::vector<swell::sim::JobType>& types_for(const swell::cluster::Cluster& cluster) {
  static std::map<std::string, std::vector<swell::sim::JobType>> known;
  auto [found, is_new] = known.try_emplace(cluster.name());
  if (is_new)
    found->second =
        swell::sim::job_types(cluster, {.leave_out_large = true, .least_share = 0.5}).value();
  return found->second;
}

/// Makes the world of `seed`: 1 to 6 nodes of 4 or 8 GPUs, and a dozen short jobs; some are rigid,
/// some consent to fewer GPUs. Two of three worlds have failing nodes; two of three have a lending
/// policy, the others a placing one.
inline std::unique_ptr<SmallWorld> make_world(std::uint64_t seed, bool with_policy = true) {
  using namespace swell;
  sim::Random random{seed, sim::kTests, 7};
  auto world = std::make_unique<SmallWorld>();
  const auto nodes = 1 + random.below(6),
             gpus = random.below(2) == 0 ? std::size_t{4} : std::size_t{8};
  world->cluster = std::make_shared<cluster::Cluster>(
      cluster::preset(std::to_string(nodes) + "x" + std::to_string(gpus) + "-h100").value());
  sim::Generator generator;
  generator.hours = 0.5 + random.uniform();
  generator.jobs_per_hour = 12;
  generator.mean_duration_s = random.between(60, 1200);
  sim::Trace trace = sim::generate(generator, seed);
  if (trace.empty()) trace.push_back({0, 1, 100});
  sim::WorkloadOptions options;
  options.sample = false;
  options.rigid_share = 0.3;
  options.consent_share = 0.5;
  world->workload =
      sim::make_workload(trace, types_for(*world->cluster), *world->cluster, options, seed).value();
  world->order = sim::make_queue_order(random.below(2) == 0 ? "fifo" : "sjf").value();
  if (with_policy && seed % 3 == 2) world->policy = std::make_unique<ChaosPlacer>(seed);
  else if (with_policy) world->policy = std::make_unique<ChaosLender>(seed);
  world->setup.cluster = world->cluster;
  world->setup.workload = &world->workload;
  world->setup.policy = world->policy.get();
  world->setup.order = world->order.get();
  world->setup.backfill = random.below(4) != 0;
  world->setup.seed = seed;
  world->setup.fixed_decision_time = true;
  world->setup.failures_per_day = random.below(3) == 0 ? 0 : 20;
  return world;
}

/// Simulates the world of `seed`. Returns the fault; empty if every job ended and no invariant
/// broke.
inline std::string stress(std::uint64_t seed) {
  const auto world = make_world(seed);
  const auto outcome = swell::sim::simulate(world->setup);
  if (!outcome) return outcome.error().message();
  if (outcome->jobs.size() != world->workload.jobs.size()) return "a job is lost";
  for (const auto& job : outcome->jobs) {
    if (!(job.end_s > job.submit_s)) return "job " + std::to_string(job.id) + " never ended";
    if (job.start_s < job.submit_s)
      return "job " + std::to_string(job.id) + " started before it was submitted";
  }
  return {};
}

}  // namespace support
