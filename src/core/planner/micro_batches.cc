// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/micro_batches.h"

#include <algorithm>

#include "core/perf/peak_memory.h"

namespace swell::planner {

namespace {

/// Returns `layout` with half as many micro-batches, twice as large.
plan::Layout halved(plan::Layout layout) {
  layout.micro_batches /= 2;
  layout.schedule.clear();
  for (plan::StageLayout& stage : layout.stages)
    for (plan::GroupLayout& group : stage.groups) group.local_batch *= 2;
  return layout;
}

/// Replaces rows by faster rows of `other`. REQUIRES: both tables have the same GPUs in the same
/// steps.
void merge(ScaleTable& table, ScaleTable&& other) {
  for (std::size_t i = 0; i < std::min(table.rows.size(), other.rows.size()); ++i) {
    ScaleRow& row = table.rows[i];
    // The first row stays: it is the running plan.
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
  if (problem.consistency == Consistency::exact) return solver_->solve(problem, budget);
  // Micro-batches with more samples than the maximum number of groups do not raise the DP degree.
  const int max_groups = problem.current.gpu_count() + static_cast<int>(problem.free.size());
  std::vector<plan::Layout> starts = {problem.current};
  while (starts.back().micro_batches % 2 == 0 && starts.back().micro_batch() < max_groups) {
    plan::Layout fewer = halved(starts.back());
    if (!perf::MemoryModel(problem.perf).fits(fewer)) break;
    starts.push_back(std::move(fewer));
  }
  std::vector<ScaleTable> tables(starts.size());
  const auto solve_one = [&](std::size_t i) {
    tables[i] = solver_->solve(
        {problem.perf, starts[i], problem.free, problem.consistency, problem.takes_chunks}, budget);
  };
  if (executor_ && starts.size() > 1) executor_->run(starts.size(), solve_one);
  else
    for (std::size_t i = 0; i < starts.size(); ++i) solve_one(i);
  for (std::size_t i = 1; i < tables.size(); ++i) merge(tables.front(), std::move(tables[i]));
  return std::move(tables.front());
}

}  // namespace swell::planner
