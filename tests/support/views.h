// SPDX-License-Identifier: GPL-2.0-or-later
// Builders of views for policies.
#pragma once

#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>
#include <string>

#include "core/policy/policy.h"
#include "support/plans.h"

namespace support {

using namespace swell::policy;

/// Returns a cluster of `nodes` nodes with 8 h100 each, all in one partition, all idle.
inline ClusterView idle_cluster(int nodes) {
  ClusterView view;
  const Resources all{8, 64, 512000};
  view.partitions.emplace_back();
  for (int i = 0; i < nodes; ++i) {
    view.nodes.push_back({"node" + std::to_string(i + 1), "h100", all, all, 0xFF});
    view.partitions[0].push_back(i);
  }
  return view;
}

/// Takes the lowest idle GPUs of a node. Returns their mask.
inline swell::plan::GpuMask take(ClusterView& view, NodeIndex node, const Resources& taken) {
  NodeView& from = view.nodes[static_cast<std::size_t>(node)];
  swell::plan::GpuMask gpus = 0;
  for (int i = 0; i < taken.gpus; ++i) {
    const swell::plan::GpuMask lowest = from.free_gpus & (~from.free_gpus + 1);
    gpus |= lowest;
    from.free_gpus ^= lowest;
  }
  from.free -= taken;
  return gpus;
}

/// Adds a running job with `gpus` basic GPUs on `node` and a maximum of four times as many.
inline ElasticJobView& add_job(ClusterView& view, JobId id, NodeIndex node, int gpus) {
  ElasticJobView job;
  job.id = id;
  job.basic_gpus = gpus;
  job.max_gpus = 4 * gpus;
  job.gpu_types = {"h100"};
  job.per_worker = {1, 8, 8000};
  job.basic_nodes = {node};
  job.may_grow = true;
  job.basic_gpu_masks = {take(view, node, job.per_worker * gpus)};
  return view.jobs.emplace_back(job);
}

inline void lend(ClusterView& view, ElasticJobView& job, JobId companion, NodeIndex node,
                 int gpus) {
  job.companions.push_back(
      {companion, node, job.per_worker * gpus, take(view, node, job.per_worker * gpus), false});
}

inline PendingDemand pending(JobId id, int nodes, int gpus_per_node) {
  PendingDemand demand;
  demand.id = id;
  demand.min_nodes = demand.max_nodes = nodes;
  demand.per_node = Resources{gpus_per_node, gpus_per_node, 1000};
  demand.gpu_type = "h100";
  return demand;
}

inline int granted(const Decisions& decisions, JobId job) {
  return std::accumulate(
      decisions.grants.begin(), decisions.grants.end(), 0,
      [&](int sum, const Grant& grant) { return sum + (grant.job == job ? grant.lent.gpus : 0); });
}

/// Returns a plan of one stage with one group of one GPU for each of `gpus`, as a data parallel job
/// has.
inline swell::plan::Layout data_parallel(
    const swell::models::Model& model, int micro_batches,
    const std::vector<std::pair<NodeIndex, swell::plan::GpuMask>>& gpus) {
  swell::plan::Layout layout{micro_batches, {{model.layers, 1, {}}}};
  for (auto [node, mask] : gpus)
    for (; mask != 0; mask &= mask - 1)
      layout.stages[0].groups.push_back({node, 0, 0, mask & (~mask + 1)});
  const int samples = model.global_batch / micro_batches, groups = layout.stages[0].dp();
  for (int j = 0; j < groups; ++j)
    layout.stages[0].groups[static_cast<std::size_t>(j)].local_batch =
        samples / groups + (j < samples % groups ? 1 : 0);
  return layout;
}

/// Gives the job a profile: it trains `model` data parallel on all its GPUs.
inline std::shared_ptr<Training> profile(ElasticJobView& job, const swell::models::Model& model,
                                         const swell::perf::Coefficients& coefficients,
                                         int micro_batches = 4) {
  auto training = std::make_shared<Training>();
  training->model = std::make_shared<const swell::models::Model>(model);
  training->coefficients = std::make_shared<const swell::perf::Coefficients>(coefficients);
  std::vector<std::pair<NodeIndex, swell::plan::GpuMask>> gpus = {
      {job.basic_nodes[0], job.basic_gpu_masks[0]}};
  training->basic = data_parallel(model, micro_batches, gpus);
  for (const CompanionView& companion : job.companions)
    gpus.emplace_back(companion.node, companion.gpus);
  training->current = data_parallel(model, micro_batches, gpus);
  job.training = training;
  return training;
}

/// Sets the view's `machines` from its nodes.
inline void know_machines(ClusterView& view, double network = 400e9) {
  view.machines = std::make_shared<const swell::cluster::Cluster>(
      h100_nodes(static_cast<int>(view.nodes.size()), 8, network));
}

/// Returns the coefficients of a job that scales well: little state, much computation.
inline swell::perf::Coefficients light_coefficients() {
  swell::perf::Coefficients k = round_coefficients();
  k.types[0].comp_s = 20e-3;
  k.param_bytes = 1e6;
  return k;
}

/// Gives the job a profile that gains little from more GPUs: two layers with large gradients, each
/// of which can only become a separate stage. B is 0.6 to 0.7 for twice the GPUs, and 0 for fewer.
inline void profile_poor(ElasticJobView& job) {
  swell::perf::Coefficients k = round_coefficients();
  k.param_bytes = 5e9;
  profile(job, small_model(2), k)->consistency = swell::planner::Consistency::exact;
}

}  // namespace support
