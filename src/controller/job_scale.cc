// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/job_scale.h"

#include <algorithm>
#include <bit>
#include <memory>

#include "controller/planning.h"
#include "core/perf/peak_memory.h"
#include "core/plan/plan.h"
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

/// GPUs that it is lent first, then what is idle on nodes that it accepts.
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

double peak_of(const perf::PerformanceModel& model, const plan::Layout& layout) {
  const perf::MemoryModel memory(model);
  double peak = 0;
  for (int i = 0; i < layout.pp(); ++i) peak = std::max(peak, memory.stage_peak(layout, i).total());
  return peak;
}

}  // namespace

JobScales::JobScales(const planner::RowFilter& filter)
    : tables_(quick_solver(), perf::Sends::counted), filter_(filter) {}

std::vector<ScalePoint> JobScales::of(const policy::ElasticJobView& job,
                                      const policy::ClusterView& view) const {
  std::vector<ScalePoint> points;
  if (!policy::Expansions::can_plan(job, view) || job.max_gpus < job.basic_gpus) return points;
  const policy::Training& training = *job.training;
  const std::size_t more =
      std::min(static_cast<std::size_t>(job.max_gpus - job.basic_gpus), kMaxMore);
  const policy::Scaling table =
      tables_.of(training, training.basic, reachable(job, view), more, *view.machines);
  const perf::PerformanceModel model(*training.model, *view.machines, *training.coefficients,
                                     perf::Sends::counted);
  std::vector<planner::RowPredictions> rows;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const int gpus = table.gpus(row);
    if (!job.sizes.empty() && row > 0 && !contains(job.sizes, gpus)) continue;
    const plan::Layout layout = table.layout(row);
    rows.push_back({table.throughput(row), table.modelled(row)});
    points.push_back({gpus, table.throughput(row), table.modelled(row), peak_of(model, layout),
                      plan::name_all(layout, *view.machines).summary()});
  }
  const std::vector<planner::RowRule> rules = planner::filtered(rows, filter_);
  for (std::size_t i = 0; i < points.size(); ++i) points[i].omitted = rules[i];
  return points;
}

Json to_json(const std::vector<ScalePoint>& points) {
  Json table = Json::array();
  for (const ScalePoint& point : points) {
    Json row = Json::object({{"gpus", point.gpus},
                             {"samples_per_s", point.samples_per_s},
                             {"modelled_samples_per_s", point.modelled},
                             {"peak_bytes", point.peak_bytes},
                             {"plan", point.plan}});
    if (point.omitted != planner::RowRule::none)
      row.set("omitted", planner::name_of(point.omitted));
    table.append(row);
  }
  return table;
}

}  // namespace swell::controller
