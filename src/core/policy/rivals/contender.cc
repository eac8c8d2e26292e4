// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/contender.h"

#include <algorithm>
#include <bit>

namespace swell::policy {

namespace {

planner::Islands islands_of(const cluster::Cluster& machines, NodeIndex node, plan::GpuMask gpus) {
  planner::Islands islands;
  for (plan::GpuMask left = gpus; left != 0; left &= left - 1) {
    const int index = std::countr_zero(left);
    planner::add_to(islands, node, machines.type_of({node, index}), plan::GpuMask{1} << index);
  }
  return islands;
}

Contender running(const ElasticJobView& view, const cluster::Cluster& machines) {
  Contender job;
  job.id = view.id;
  job.running = true;
  job.training = view.training;
  job.asked = view.basic_gpus;
  job.max_gpus = std::max(view.max_gpus, view.basic_gpus);
  job.sizes = view.sizes;
  job.rigid = !view.training || job.max_gpus <= job.asked ||
              (view.sizes.size() == 1 && view.sizes[0] == job.asked);
  job.movable = !job.rigid && view.may_grow;
  for (std::size_t i = 0; i < view.basic_nodes.size() && i < view.basic_gpu_masks.size(); ++i)
    planner::add_all(job.held, islands_of(machines, view.basic_nodes[i], view.basic_gpu_masks[i]));
  job.nodes = std::max<int>(1, static_cast<int>(view.basic_nodes.size()));
  job.submitted_s = view.submitted_s;
  job.started_s = view.started_s;
  job.reconfigurations = view.reconfigurations;
  job.remaining_samples = view.remaining_samples;
  job.deadline_s = view.deadline_s;
  job.held_s = view.held_s;
  return job;
}

Contender pending(const PendingDemand& demand, int all_gpus) {
  Contender job;
  job.id = demand.id;
  job.training = demand.training;
  job.nodes = std::max(1, demand.min_nodes);
  job.asked = std::max(demand.in_all.gpus, demand.per_node.gpus * job.nodes);
  job.max_gpus = demand.max_gpus > 0 ? demand.max_gpus : all_gpus;
  job.rigid = !demand.training || job.max_gpus <= job.asked;
  job.submitted_s = demand.submitted_s;
  job.remaining_samples = demand.remaining_samples;
  job.deadline_s = demand.deadline_s;
  job.held_s = demand.held_s;
  return job;
}

}  // namespace

bool Contender::may_have(int gpus) const noexcept {
  if (gpus == asked) return true;
  if (rigid || gpus > max_gpus) return false;
  return sizes.empty() || std::find(sizes.begin(), sizes.end(), gpus) != sizes.end();
}

std::vector<Contender> contenders(const ClusterView& view) {
  std::vector<Contender> jobs;
  for (const ElasticJobView& job : view.jobs) jobs.push_back(running(job, *view.machines));
  for (const PendingDemand& demand : view.queue) {
    jobs.push_back(pending(demand, view.machines->gpu_count()));
    if (jobs.back().asked < 1) jobs.pop_back();  // a job without GPUs
  }
  return jobs;
}

void decide_plan(Decisions& decisions, const Contender& job, plan::Layout layout) {
  if (job.running && job.training && job.training->current == layout) return;
  if (!job.running && layout.stages.empty()) return;
  decisions.plans.push_back({job.id, std::move(layout)});
}

double restart_s(const Contender& job, const cluster::Cluster& machines) {
  if (!job.training || job.training->current.stages.empty()) return 0;
  const Training& training = *job.training;
  plan::Layout again = training.current;
  ++again.micro_batches;  // makes it another plan with the same state on the same GPUs
  const perf::Coefficients coefficients =
      training.coefficients ? *training.coefficients
                            : perf::expected_coefficients(*training.model, machines);
  return redeploy::cost_of(redeploy::Method::checkpoint, coefficients, training.current, again,
                           machines, redeploy::ranks_of(*training.model))
      .pause_s;
}

plan::Layout users_plan_on(const Contender& job, planner::Islands gpus) {
  if (!job.training) {
    plan::StageLayout stage;
    planner::take_groups(stage, gpus, 1, job.asked);
    return {1, {stage}};
  }
  plan::Layout layout{job.training->basic.micro_batches, {}};
  for (const plan::StageLayout& users : job.training->basic.stages) {
    plan::StageLayout stage{users.layers, users.tp, {}};
    if (planner::take_groups(stage, gpus, users.tp, users.dp()) < users.dp()) return {};
    for (std::size_t j = 0; j < stage.groups.size(); ++j)
      stage.groups[j].local_batch = users.groups[j].local_batch;
    layout.stages.push_back(std::move(stage));
  }
  return layout;
}

}  // namespace swell::policy
