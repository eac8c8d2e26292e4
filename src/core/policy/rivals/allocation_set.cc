// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/allocation_set.h"

#include <algorithm>
#include <bit>

#include "core/policy/rivals/place_sizes.h"

namespace swell::policy {

namespace {

/// Adds the configuration that a rigid job asks for, if the nodes are large enough.
void add_asked(std::vector<Configuration>& found, const Contender& job, int type,
               const GpuPool& pool) {
  const int share = job.asked / job.nodes;
  if (share * job.nodes != job.asked || share > pool.per_node(type)) return;
  if (job.nodes > 1 && job.nodes > pool.full_nodes(type)) return;
  found.push_back({type, job.asked, job.nodes, {}, 1});
}

}  // namespace

plan::Layout plan_on(const Contender& job, const planner::Islands& gpus,
                     const Configuration& configuration, const ClusterView& view) {
  if (job.rigid) return users_plan_on(job, gpus);
  JobModel model(job.training, view.machines);
  plan::Layout layout = model.on(gpus, configuration.degrees);
  return layout.stages.empty() ? model.best_on(gpus, users_cell(*job.training)) : layout;
}

std::vector<Configuration> configurations(const Contender& job, const ClusterView& view,
                                          const GpuPool& pool, CurveCache& curves) {
  std::vector<Configuration> found;
  for (int type = 0; type < static_cast<int>(view.machines->types().size()); ++type) {
    const int whole = pool.per_node(type);
    if (whole == 0) continue;
    if (job.rigid) {
      add_asked(found, job, type, pool);
      continue;
    }
    const auto curve =
        curves.get(job.training, view.machines, type, users_cell(*job.training), job.max_gpus);
    for (const planner::SymmetricRow& point : *curve) {
      const int gpus = point.gpus;
      const bool share = gpus <= whole && std::has_single_bit(static_cast<unsigned>(gpus));
      const bool nodes = gpus % whole == 0 && gpus / whole <= pool.full_nodes(type);
      const bool asked =
          gpus == job.asked && job.asked % job.nodes == 0 && job.asked / job.nodes <= whole;
      if (!(share || nodes || asked) || !job.may_have(gpus)) continue;
      found.push_back({type, gpus,
                       nodes   ? gpus / whole
                       : share ? 1
                               : job.nodes,
                       point.degrees, point.throughput});
    }
  }
  return found;
}

void decide_plans(Decisions& decisions, const std::vector<Request>& requests, const GpuPool& pool,
                  const ClusterView& view) {
  std::vector<Sized> sized;
  for (const Request& request : requests) {
    Sized one{{}, request.job->held, request.keeps};
    for (const Configuration& choice : request.choices)
      one.sizes.push_back({choice.type, choice.gpus, choice.nodes});
    sized.push_back(std::move(one));
  }
  const std::vector<Placed> placed = place_sizes(sized, pool);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Contender& job = *requests[i].job;
    if (requests[i].keeps && placed[i].gpus == job.held) continue;
    plan::Layout layout;
    if (!placed[i].gpus.empty())
      layout = plan_on(job, placed[i].gpus,
                       requests[i].choices[static_cast<std::size_t>(placed[i].size)], view);
    decide_plan(decisions, job, std::move(layout));
  }
}

}  // namespace swell::policy
