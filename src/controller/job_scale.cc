// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/job_scale.h"

#include <algorithm>
#include <bit>
#include <memory>

#include "controller/planning.h"
#include "core/perf/performance_model.h"
#include "core/planner/incremental.h"
#include "core/policy/lending/expansions.h"

namespace swell::controller {

namespace {

/// GPUs beyond its own that a table goes over: planning time grows with their square.
constexpr std::size_t kMaxMore = 64;

std::unique_ptr<planner::Solver> quick_solver() {
  planner::Incremental::Options options;
  options.max_free = static_cast<int>(kMaxMore);
  options.fresh_gpus = 0;
  return std::make_unique<planner::Limited>(std::make_unique<planner::Incremental>(options),
                                            solve_budget);
}

void add(std::vector<cluster::GpuRef>& gpus, const plan::Allocations& allocations, int node,
         plan::GpuMask mask) {
  for (; mask != 0; mask &= mask - 1) gpus.push_back(allocations.gpu(node, std::countr_zero(mask)));
}

bool contains(const auto& list, const auto& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

/// Returns its lent GPUs first, then idle ones on nodes that it accepts.
std::vector<cluster::GpuRef> reachable(const policy::ElasticJobView& job,
                                       const policy::ClusterView& view) {
  std::vector<cluster::GpuRef> gpus;
  const plan::Allocations allocations = policy::allocations_of(job, view);
  for (const policy::CompanionView& companion : job.companions)
    if (!companion.leaving && companion.node >= 0)
      add(gpus, allocations, companion.node, companion.gpus);
  for (const policy::NodeIndex node : view.partitions[static_cast<std::size_t>(job.partition)]) {
    const policy::NodeView& seen = view.nodes[static_cast<std::size_t>(node)];
    if (seen.settling || job.excluded_nodes.contains(node)) continue;
    if (!job.gpu_types.empty() && !contains(job.gpu_types, seen.gpu_type)) continue;
    add(gpus, allocations, node, seen.free_gpus);
  }
  return gpus;
}

}  // namespace

JobScales::JobScales(const planner::RowFilter& filter)
    : tables_(quick_solver(), perf::Sends::counted), filter_(filter) {}

planner::NamedTable JobScales::of(const policy::ElasticJobView& job,
                                  const policy::ClusterView& view) const {
  if (!policy::Expansions::can_plan(job, view) || job.max_gpus < job.basic_gpus) return {};
  const policy::Training& training = *job.training;
  const std::size_t more =
      std::min(static_cast<std::size_t>(job.max_gpus - job.basic_gpus), kMaxMore);
  const policy::Scaling found =
      tables_.of(training, training.basic, reachable(job, view), more, *view.machines);
  const perf::PerformanceModel model(*training.model, *view.machines, *training.coefficients,
                                     perf::Sends::counted);
  planner::ScaleTable table;
  for (std::size_t row = 0; row < found.rows(); ++row)
    if (row == 0 || job.sizes.empty() || contains(job.sizes, found.gpus(row)))
      table.rows.push_back(found.row(row));
  planner::filter_rows(table, filter_);
  return planner::name_all(table, model, training.source, planner::Detail::brief);
}

}  // namespace swell::controller
