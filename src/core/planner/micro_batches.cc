// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/micro_batches.h"

#include <algorithm>

#include "core/perf/peak_memory.h"

namespace swell::planner {

namespace {

/// `layout` with half as many micro-batches, twice as large.
plan::Layout halved(plan::Layout layout) {
  layout.micro_batches /= 2;
  for (plan::StageLayout& stage : layout.stages)
    for (plan::GroupLayout& group : stage.groups) group.local_batch *= 2;
  return layout;
}

/// Takes the rows of `other` that are faster. REQUIRES: both tables are of the same GPUs in the
/// same steps.
void merge(ScaleTable& table, ScaleTable&& other) {
  for (std::size_t i = 0; i < std::min(table.rows.size(), other.rows.size()); ++i) {
    ScaleRow& row = table.rows[i];
    // The first row stays: it is the plan that the job runs.
    if (i == 0 || row.gpus != other.rows[i].gpus || other.rows[i].throughput <= row.throughput)
      continue;
    row = std::move(other.rows[i]);
    row.why = "fewer micro-batches, " + row.why;
  }
  table.complete = table.complete && other.complete;
  table.evaluated += other.evaluated;
}

}  // namespace

ScaleTable FewerMicroBatches::solve(const Problem& problem, const Budget& budget) const {
  ScaleTable table = solver_->solve(problem, budget);
  if (problem.consistency == Consistency::exact) return table;
  // Micro-batches with more samples than the largest possible number of groups do not raise the DP
  // degree.
  const int max_groups = problem.current.gpu_count() + static_cast<int>(table.order.size());
  plan::Layout fewer = problem.current;
  while (fewer.micro_batches % 2 == 0 && fewer.micro_batch() < max_groups) {
    fewer = halved(std::move(fewer));
    if (!perf::MemoryModel(problem.perf).fits(fewer)) break;
    merge(table, solver_->solve({problem.perf, fewer, problem.free, problem.consistency}, budget));
  }
  return table;
}

}  // namespace swell::planner
