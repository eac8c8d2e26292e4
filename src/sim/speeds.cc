// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/speeds.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/perf/performance_model.h"
#include "sim/basic_plan.h"
#include "sim/truth.h"

namespace swell::sim {

namespace {

GpuSet first_of(const cluster::Cluster& cluster, int gpus, int gpu_type) {
  GpuSet set;
  for (int node = 0; gpus > 0 && node < static_cast<int>(cluster.nodes().size()); ++node) {
    if (!has_type(cluster, node, gpu_type)) continue;
    const int here = std::min(gpus, static_cast<int>(cluster.node(node).gpus.size()));
    set.push_back({node, lowest(~plan::GpuMask{0}, here)});
    gpus -= here;
  }
  return set;
}

/// Appends the speeds of one job.
void add_speeds(const JobSpec& spec, const JobType& type, const cluster::Cluster& cluster,
                std::uint64_t seed, int max_gpus, std::vector<Speed>& speeds) {
  speeds.push_back({spec.id, type.gpus, 1});
  const auto own = first_gpus(type.gpus, cluster, type.gpu_type);
  const auto basic = own ? basic_layout(type, *own, cluster) : std::nullopt;
  if (!basic) return;
  Truth truth(type, cluster, seed, spec.id);
  const auto coefficients = truth.profile(*basic, 0);
  if (!coefficients) return;
  const perf::PerformanceModel model(*type.model, cluster, *coefficients);
  const double basic_s = truth.iteration_s(*basic);
  // A plan that was run before is run again where none is expected to be faster.
  double best_s = model.iteration_time(*basic).total();
  for (int gpus = type.gpus + 1; gpus <= max_gpus; ++gpus) {
    const auto layout =
        best_symmetric_layout(type, *coefficients, first_of(cluster, gpus, type.gpu_type), cluster);
    if (!layout || !truth.fits(*layout)) continue;
    const double expected_s = model.iteration_time(*layout).total();
    if (expected_s >= best_s) continue;
    best_s = expected_s;
    speeds.push_back({spec.id, gpus, basic_s / truth.iteration_s(*layout)});
  }
}

}  // namespace

std::vector<Speed> speeds_of(const Workload& workload, const cluster::Cluster& cluster,
                             std::uint64_t seed, double max_factor) {
  std::vector<Speed> speeds;
  for (const JobSpec& spec : workload.jobs) {
    const JobType& type = workload.type_of(spec);
    int max_gpus = type.gpus;
    if (spec.elastic) {
      max_gpus = cluster.gpu_count();
      if (max_factor > 0)
        max_gpus = std::min(max_gpus, static_cast<int>(std::floor(max_factor * type.gpus)));
    }
    add_speeds(spec, type, cluster, seed, max_gpus, speeds);
  }
  return speeds;
}

std::string speeds_csv(const std::vector<Speed>& speeds) {
  std::string text = "job,gpus,speedup\n";
  for (const Speed& one : speeds)
    text += fmt::format("{},{},{:.5f}\n", one.job, one.gpus, one.speedup);
  return text;
}

}  // namespace swell::sim
