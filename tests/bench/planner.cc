// SPDX-License-Identifier: GPL-2.0-or-later
// Measures the speed of the incremental planner on one core: the paper's cases, and how its time
// grows with N M W / w. Times are the minimum of several runs. Last line: JSON.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <vector>

#include "core/models/catalogue.h"
#include "core/planner/affinity.h"
#include "core/planner/incremental.h"
#include "core/planner/symmetric.h"
#include "support/plans.h"

using namespace swell;

namespace {

/// Returns the best symmetric plan of a job on the first `n` GPUs of the cluster.
plan::Layout start_with(const perf::PerformanceModel& perf, int n, int micro_batches) {
  planner::Islands gpus;
  int left = n;
  for (int node = 0; left > 0; ++node)
    for (int g = 0; g < 8 && left > 0; ++g, --left)
      planner::add_to(gpus, node, 0, plan::GpuMask{1} << g);
  planner::Evaluator evaluator(perf, perf.model().global_batch / micro_batches);
  return planner::best_symmetric(evaluator, gpus, micro_batches,
                                 planner::degrees_for(perf.model().heads, evaluator.micro_batch()),
                                 {})
      .layout;
}

/// Returns this thread's processor time, so that other programs on a shared machine do not count.
double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

struct Timed {
  double ms = 1e300;
  long evaluated = 0;
  std::size_t rows = 0;
  double gain = 0;
};

Timed time_of(const planner::Problem& problem, planner::Incremental::Options options, int runs) {
  Timed best;
  for (int i = 0; i < runs; ++i) {
    const double begin = cpu_ms();
    const auto table = planner::Incremental(options).solve(problem, {});
    best.ms = std::min(best.ms, cpu_ms() - begin);
    best.evaluated = table.evaluated;
    best.rows = table.rows.size();
    best.gain = table.rows.back().throughput / table.rows.front().throughput;
  }
  return best;
}

void print(const char* what, const Timed& timed) {
  std::printf("%-36s %9.3f ms %8ld plans %5zu rows %6.2fx\n", what, timed.ms, timed.evaluated,
              timed.rows, timed.gain);
}

/// Returns the least squares slope of log time over log(N M W / w): at most 1 is no worse than the
/// paper's bound.
double slope(const perf::PerformanceModel& perf, const cluster::Cluster& cluster) {
  std::vector<std::pair<double, double>> points;
  for (int n : {16, 32, 64, 128, 256})
    for (int m : {n, 2 * n}) {
      if (n + m > cluster.gpu_count()) continue;
      planner::Problem problem{perf, start_with(perf, n, 16), {}};
      problem.free = planner::affinity_order(problem.current,
                                             planner::unused(problem.current, cluster), cluster);
      problem.free.resize(static_cast<std::size_t>(m));
      planner::Incremental::Options options;
      options.max_free = m;
      const Timed timed = time_of(problem, options, 5);
      const double w = std::min((n + 15) / 16, 8);
      std::printf("N %4d M %4d: ", n, m);
      print("", timed);
      points.emplace_back(std::log(static_cast<double>(n) * m * 8 / w), std::log(timed.ms));
    }
  double x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [a, b] : points) {
    x += a;
    y += b;
    xx += a * a;
    xy += a * b;
  }
  const double count = static_cast<double>(points.size());
  return (count * xy - x * y) / (count * xx - x * x);
}

}  // namespace

int main() {
  const auto entry = models::find_model("llama2-13b").value();
  const auto small = cluster::preset("8x8-h100").value();
  const auto k = perf::expected_coefficients(entry.model, small);
  const perf::PerformanceModel on_small(entry.model, small, k);
  planner::Problem grow{on_small, start_with(on_small, 16, 16), {}};
  grow.free = planner::unused(grow.current, small);
  planner::Incremental::Options all;
  all.max_free = 48;
  const Timed llama = time_of(grow, all, 20);
  print("llama2-13b, 16 to 64 GPUs", llama);

  const auto large = cluster::preset("128x8-h100").value();
  const perf::PerformanceModel on_large(entry.model, large, k);
  planner::Problem many{on_large, start_with(on_large, 64, 16), {}};
  many.free = planner::unused(many.current, large);
  const Timed capped = time_of(many, {}, 10);
  print("64 GPUs, 960 free, stops at M = N", capped);
  all.max_free = 960;
  const Timed uncapped = time_of(many, all, 3);
  print("64 GPUs, 960 free, all of them", uncapped);

  const double fitted = slope(on_large, large);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf(
      "{\"llama2_13b_16_to_64_ms\":%.3f,\"n64_m960_ms\":%.3f,\"n64_m960_all_ms\":%.3f,\"rss_mb\":%.1f,\"slope\":%.3f}\n",
      llama.ms, capped.ms, uncapped.ms, static_cast<double>(usage.ru_maxrss) / 1024, fitted);
  return 0;
}
