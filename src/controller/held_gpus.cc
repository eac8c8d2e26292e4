// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/held_gpus.h"

#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <string>

#include "controller/elastic_job.h"
#include "controller/gpu_masks.h"
#include "controller/machines.h"
#include "core/perf/performance_model.h"
#include "core/planner/symmetric.h"

namespace swell::controller {

Result<HeldGpus> held_gpus(const ElasticJob& job, const slurm::JobRecord& record,
                           const cluster::Cluster& machines, bool with_companions) {
  HeldGpus held;
  const auto add = [&](const std::string& name, const slurm::GpuRequest& gpus) -> Result<void> {
    const auto node = machines.find_node(name);
    if (!node) return Error(fmt::format("node {} is drained or does not answer", name));
    if (!can_plan_on(machines, *node))
      return Error(fmt::format("the GPUs of {} have no type that is known to the planner", name));
    const plan::GpuMask mask = mask_of(gpus);
    if (mask == 0) return Error(fmt::format("Slurm does not say which GPUs it holds on {}", name));
    held[*node] |= mask;
    return {};
  };
  for (const slurm::GpuAllocation& each : record.gpus)
    if (auto good = add(each.node, each.gpus); !good) return good.error();
  for (const Companion& companion : job.companions)
    if (with_companions && !companion.is_leaving())
      if (auto good = add(companion.node, companion.gpus); !good) return good.error();
  return held;
}

plan::Allocations allocations_of(const ElasticJob& job, const slurm::JobRecord& record,
                                 const cluster::Cluster& machines) {
  plan::Allocations allocations;
  if (!machines.interconnect().devices_apart) return allocations;
  for (const slurm::GpuAllocation& each : record.gpus)
    if (const auto node = machines.find_node(each.node)) allocations.add(*node, mask_of(each.gpus));
  for (const Companion& companion : job.companions)
    if (const auto node = machines.find_node(companion.node))
      allocations.add(*node, mask_of(companion.gpus));
  return allocations;
}

HeldGpus gpus_of(const plan::Layout& layout) {
  HeldGpus gpus;
  for (const plan::StageLayout& stage : layout.stages)
    for (const plan::GroupLayout& group : stage.groups) gpus[group.node] |= group.gpus;
  return gpus;
}

std::optional<plan::Layout> symmetric_layout(const models::Model& model,
                                             const perf::Coefficients& coefficients,
                                             const HeldGpus& held, int micro_batches,
                                             const cluster::Cluster& machines,
                                             const plan::Allocations& allocations) {
  planner::Islands islands;
  for (const auto& [node, gpus] : held)
    for (plan::GpuMask left = gpus; left != 0; left &= left - 1)
      planner::add_to(islands, node, machines.type_of({node, std::countr_zero(left)}),
                      left & (~left + 1), allocations.part_of(node, std::countr_zero(left)));
  const perf::PerformanceModel performance(model, machines, coefficients, perf::Sends::counted);
  planner::Evaluator evaluator(performance, model.global_batch / micro_batches);
  const auto degrees = planner::degrees_for(model, evaluator.micro_batch());
  auto found = planner::best_symmetric(evaluator, islands, micro_batches, degrees, {});
  if (!std::isfinite(found.seconds)) return std::nullopt;
  return std::move(found.layout);
}

}  // namespace swell::controller
