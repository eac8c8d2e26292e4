// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/growing_plan.h"

#include "core/planner/affinity.h"
#include "core/planner/combination.h"

namespace swell::planner {

GrowingPlan::GrowingPlan(const Problem& problem, Evaluator& evaluator)
    : best{problem.current, {}, evaluator.seconds(problem.current), "the current plan"},
      problem_(problem),
      evaluator_(evaluator) {
  table_.order = affinity_order(problem.current, problem.free, problem.perf.cluster());
  for (const plan::StageLayout& stage : problem.current.stages) add_stage(gpus, stage);
}

void GrowingPlan::add_gpu(std::size_t i) {
  const cluster::GpuRef gpu = table_.order[i];
  add_to(gpus, gpu.node, problem_.perf.cluster().type_of(gpu), plan::GpuMask{1} << gpu.index,
         gpu.part);
  best.why = "nothing better: the new GPUs stay idle";
}

void GrowingPlan::write_row() {
  table_.rows.push_back(
      {{count(gpus), problem_.perf.model().global_batch / best.seconds}, best.layout, best.why});
}

ScaleTable GrowingPlan::take() {
  table_.evaluated = evaluator_.evaluated();
  leave_out_indivisible(table_, problem_.perf.model());
  return std::move(table_);
}

}  // namespace swell::planner
