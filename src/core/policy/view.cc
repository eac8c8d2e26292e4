// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/view.h"

namespace swell::policy {

plan::Allocations allocations_of(const ElasticJobView& job, const cluster::Cluster* machines) {
  plan::Allocations allocations;
  if (machines == nullptr || !machines->interconnect().devices_apart) return allocations;
  for (std::size_t i = 0; i < job.basic_nodes.size() && i < job.basic_gpu_masks.size(); ++i)
    allocations.add(job.basic_nodes[i], job.basic_gpu_masks[i]);
  for (const CompanionView& companion : job.companions)
    if (companion.node >= 0) allocations.add(companion.node, companion.gpus);
  return allocations;
}

redeploy::Cost cost_of_change(const ElasticJobView& job, const plan::Layout& to,
                              const cluster::Cluster& machines) {
  const plan::Layout& from = job.training->current;
  const redeploy::Cost model =
      redeploy::cost_of(job.method, *job.training->coefficients, from, to, machines,
                        redeploy::ranks_of(*job.training->model));
  if (job.measured_cost && !to.stages.empty() && !from.stages.empty() && from != to)
    return redeploy::within_model(*job.measured_cost, model);
  return model;
}

}  // namespace swell::policy
