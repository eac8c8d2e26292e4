// SPDX-License-Identifier: GPL-2.0-or-later
// Views for policies that replace the base scheduler: running and pending jobs on one cluster.
#pragma once

#include <map>
#include <memory>
#include <stdexcept>

#include "core/models/catalogue.h"
#include "core/planner/symmetric.h"
#include "core/policy/policy.h"
#include "core/policy/rivals/scaling_curve.h"
#include "support/plans.h"

namespace support {

/// A cluster's view, to which tests add jobs. Each running job takes the first idle GPUs.
class RivalView {
 public:
  explicit RivalView(swell::cluster::Cluster cluster)
      : machines(std::make_shared<swell::cluster::Cluster>(std::move(cluster))) {
    view.machines = machines;
    view.partitions.emplace_back();
    for (int n = 0; n < static_cast<int>(machines->nodes().size()); ++n) {
      const int gpus = static_cast<int>(machines->node(n).gpus.size());
      swell::policy::NodeView node;
      node.name = machines->node(n).name;
      node.total = node.free = swell::policy::Resources{gpus, 8 * gpus, 65536L * gpus};
      node.free_gpus = (swell::plan::GpuMask{1} << gpus) - 1;
      view.nodes.push_back(node);
      view.partitions[0].push_back(n);
    }
    view.now_s = 10000;
  }

  /// Returns a training with the plan that a user submits: symmetric, with 16 micro-batches, on the
  /// cluster's first GPUs.
  std::shared_ptr<swell::policy::Training> training(const swell::models::Model& model,
                                                    swell::perf::Combination shape) {
    auto made = std::make_shared<swell::policy::Training>();
    made->model = std::make_shared<swell::models::Model>(model);
    made->basic.micro_batches = shape.micro_batches;
    swell::policy::JobModel job(made, machines);
    swell::planner::Islands gpus;
    int left = shape.gpus();
    for (int n = 0; n < static_cast<int>(view.nodes.size()); ++n)
      for (int g = 0; g < view.nodes[static_cast<std::size_t>(n)].total.gpus && left > 0;
           ++g, --left)
        swell::planner::add_to(gpus, n, machines->type_of({n, g}), swell::plan::GpuMask{1} << g);
    made->basic = job.on(gpus, shape);
    if (made->basic.stages.empty()) throw std::logic_error("the plan does not fit this cluster");
    return made;
  }

  swell::policy::PendingDemand& pend(swell::policy::JobId id,
                                     std::shared_ptr<const swell::policy::Training> training,
                                     int max, double submitted_s = 9990) {
    swell::policy::PendingDemand demand;
    demand.id = id;
    const int gpus = training->basic.gpu_count(), whole = view.nodes[0].total.gpus;
    demand.min_nodes = demand.max_nodes = gpus <= whole ? 1 : gpus / whole;
    demand.per_node.gpus = gpus / demand.min_nodes;
    demand.training = std::move(training);
    demand.max_gpus = max;
    demand.submitted_s = submitted_s;
    return view.queue.emplace_back(demand);
  }

  /// Adds a pending job of unknown training: only its GPUs and nodes are known.
  void pend_unknown(swell::policy::JobId id, int gpus, int nodes = 1) {
    swell::policy::PendingDemand demand;
    demand.id = id;
    demand.min_nodes = demand.max_nodes = nodes;
    demand.per_node.gpus = gpus / nodes;
    demand.max_gpus = gpus;
    view.queue.push_back(demand);
  }

  /// Adds a running job with `training` and `shape` on `gpus`, or on the first idle ones.
  swell::policy::ElasticJobView& run(swell::policy::JobId id,
                                     const swell::policy::Training& training,
                                     swell::perf::Combination shape, int max,
                                     swell::planner::Islands gpus = {}) {
    if (gpus.empty()) gpus = first_idle(shape.gpus());
    auto own = std::make_shared<swell::policy::Training>(training);
    own->current = swell::policy::JobModel(own, machines).on(gpus, shape);
    if (own->current.stages.empty())
      throw std::logic_error("the running plan does not fit its GPUs");
    own->max_gpus_so_far = own->current.gpu_count();
    swell::policy::ElasticJobView job;
    job.id = id;
    job.basic_gpus = training.basic.gpu_count();
    job.max_gpus = max;
    job.per_worker = {1, 8, 65536};
    for (const swell::planner::Island& island : gpus) {
      job.basic_nodes.push_back(island.node);
      job.basic_gpu_masks.push_back(island.gpus);
      auto& node = view.nodes[static_cast<std::size_t>(island.node)];
      node.free_gpus &= ~island.gpus;
      node.free -= job.per_worker * island.count();
    }
    job.may_grow = true;
    job.training = own;
    return view.jobs.emplace_back(job);
  }

  std::shared_ptr<swell::cluster::Cluster> machines;
  swell::policy::ClusterView view;

 private:
  swell::planner::Islands first_idle(int gpus) const {
    swell::planner::Islands taken;
    for (int n = 0; n < static_cast<int>(view.nodes.size()); ++n)
      for (int g = 0; g < 64 && gpus > 0; ++g)
        if ((view.nodes[static_cast<std::size_t>(n)].free_gpus >> g & 1) != 0) {
          swell::planner::add_to(taken, n, machines->type_of({n, g}), swell::plan::GpuMask{1} << g);
          --gpus;
        }
    return taken;
  }
};

/// Returns the number of GPUs of each job after `decisions` are carried out. Throws if a plan takes
/// a GPU that does not exist, is not free, or is taken twice, or does not fit its job or memory.
inline std::map<swell::policy::JobId, int> carry_out(const RivalView& on,
                                                     const swell::policy::Decisions& decisions) {
  using namespace swell;
  std::map<policy::JobId, const plan::Layout*> planned;
  for (const policy::NewPlan& plan : decisions.plans)
    if (!planned.emplace(plan.job, &plan.layout).second)
      throw std::logic_error("two plans for one job");
  std::vector<plan::GpuMask> free;
  for (const auto& node : on.view.nodes) free.push_back(node.free_gpus);
  std::map<policy::JobId, int> has;
  for (const auto& job : on.view.jobs) {
    for (std::size_t i = 0; i < job.basic_nodes.size(); ++i) {
      if (planned.contains(job.id))
        free[static_cast<std::size_t>(job.basic_nodes[i])] |= job.basic_gpu_masks[i];
      else has[job.id] += std::popcount(job.basic_gpu_masks[i]);
    }
    if (planned.contains(job.id) && !job.may_grow)
      throw std::logic_error("a job that cannot be moved is moved");
  }
  auto check = [&](policy::JobId id, const std::shared_ptr<const policy::Training>& training,
                   const plan::Layout& layout) {
    has[id] = layout.gpu_count();
    for (const auto& stage : layout.stages) {
      for (const auto& group : stage.groups) {
        plan::GpuMask& idle = free[static_cast<std::size_t>(group.node)];
        if (std::popcount(group.gpus) != stage.tp || (group.gpus & ~idle) != 0)
          throw std::logic_error("a GPU is not free, or taken twice");
        idle &= ~group.gpus;
      }
    }
    if (!training || layout.stages.empty()) return;
    int layers = 0;
    for (const auto& stage : layout.stages) {
      layers += stage.layers;
      int samples = 0;
      for (const auto& group : stage.groups) samples += group.local_batch;
      if (samples * layout.micro_batches != training->model->global_batch)
        throw std::logic_error("samples are lost");
    }
    if (layers != training->model->layers) throw std::logic_error("layers are lost");
    const auto k = training->coefficients
                       ? *training->coefficients
                       : perf::expected_coefficients(*training->model, *on.machines);
    const perf::PerformanceModel perf(*training->model, *on.machines, k);
    if (!perf::MemoryModel(perf).fits(layout)) throw std::logic_error("memory is too small");
  };
  for (const auto& job : on.view.jobs)
    if (planned.contains(job.id)) check(job.id, job.training, *planned[job.id]);
  for (const auto& demand : on.view.queue)
    if (planned.contains(demand.id)) check(demand.id, demand.training, *planned[demand.id]);
  return has;
}

}  // namespace support
