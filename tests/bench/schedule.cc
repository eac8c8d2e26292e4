// SPDX-License-Identifier: GPL-2.0-or-later
// Measures how fast schedules are predicted and searched on one core, and the length of their text;
// and how fast an exact job's filtered scale table is made, from 8 to 32 stages.
// Times are processor time, the minimum of several runs. Last line: JSON.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "core/cluster/gpu_type.h"
#include "core/cluster/presets.h"
#include "core/models/catalogue.h"
#include "core/planner/incremental.h"
#include "core/planner/scale_table.h"
#include "core/planner/schedule_search.h"
#include "core/schedule/named.h"
#include "core/schedule/text.h"

using namespace swell;
using namespace swell::schedule;

namespace {

double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

template <typename Body>
double time_of(int runs, const Body& body) {
  double best = 1e300;
  for (int i = 0; i < runs; ++i) {
    const double begin = cpu_ms();
    body();
    best = std::min(best, cpu_ms() - begin);
  }
  return best;
}

/// Returns the costs of a model with its units spread as evenly as possible over the chunks; a head
/// costs three layers.
Costs model_costs(const Shape& shape, int layers, int heads) {
  std::vector<double> units(static_cast<std::size_t>(layers), 1.0);
  for (int i = 0; i <= heads; ++i) units.push_back(1.5);  // the head, and MTP heads
  Costs costs = Costs::uniform(shape, {});
  const std::size_t places = static_cast<std::size_t>(shape.stages * shape.chunks);
  for (std::size_t i = 0; i < places; ++i) {
    double work = 0;
    for (std::size_t u = i * units.size() / places; u < (i + 1) * units.size() / places; ++u)
      work += units[u];
    const int stage = static_cast<int>(i) % shape.stages,
              chunk = static_cast<int>(i) / shape.stages;
    ChunkCost& cost = costs.at(stage, chunk);
    cost.seconds = {0.01 * work, 0.01 * work, 0.01 * work};
    cost.bytes = {work * 1e8, work * -0.3e8, work * -0.7e8};
    cost.send_forward_s = cost.send_backward_s = 0.001;
  }
  return costs;
}

/// Returns the plan of stages over `nodes` nodes each, with groups of one GPU.
plan::Layout wide_plan(const Schedule& schedule, int nodes) {
  plan::Layout layout{schedule.shape.micro_batches, {}};
  layout.schedule = to_text(schedule);
  for (int stage = 0; stage < schedule.shape.stages; ++stage) {
    plan::StageLayout& made = layout.stages.emplace_back();
    made.layers = 2 * schedule.shape.chunks;
    made.tp = 1;
    made.chunks.assign(static_cast<std::size_t>(schedule.shape.chunks), 2);
    for (int node = 0; node < nodes; ++node)
      for (int gpu = 0; gpu < 8; ++gpu)
        made.groups.push_back({stage * nodes + node, 0, 1, plan::GpuMask{1} << gpu});
  }
  return layout;
}

/// FlexTrain's largest model with two MTP heads on 8 of 32 nodes, with 64 micro-batches of one
/// sample, on GPUs with memory enough for 8 stages.
struct LargeJob {
  models::CatalogueEntry entry = *models::find_model("flextrain-large");
  cluster::Cluster machines = [] {
    cluster::GpuType gpu = *cluster::find_gpu_type("h100");
    gpu.memory_bytes *= 4;
    return cluster::uniform_cluster("large", gpu, 32, 8, 400e9);
  }();
  perf::Coefficients coefficients = perf::expected_coefficients(entry.model, machines);
  plan::Layout current{64, {}};
  std::vector<cluster::GpuRef> free;

  LargeJob() {
    entry.model.global_batch = current.micro_batches;
    for (int node = 0; node < 8; ++node)
      current.stages.push_back({node < 5 ? 8 : 7, 8, {{node, 0, 1, plan::GpuMask{0xff}}}});
    for (int node = 8; node < 32; ++node)
      for (int gpu = 0; gpu < 8; ++gpu) free.push_back({node, gpu});
  }
};

long peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

}  // namespace

int main() {
  const long start_kib = peak_kib();
  const Shape shape{32, 2, 64};
  const Schedule schedule = zero_bubble(shape);
  const Costs costs = model_costs(shape, 61, 2);
  std::size_t nodes = 0;
  for (const Order& order : schedule.orders) nodes += order.size();
  double predicted = 0;
  const auto graph = Graph::of(schedule);
  const double graph_ms = time_of(20, [&] { (void)Graph::of(schedule); });
  const double evaluate_ms = time_of(20, [&] { predicted = evaluate(*graph, costs).seconds; });
  std::printf("%zu passes, %zu nodes: graph %.3f ms, prediction %.3f ms, of %.3f s\n", nodes,
              graph->nodes().size(), graph_ms, evaluate_ms, predicted);

  InOrder alone;
  planner::ScheduleProblem problem{{model_costs({32, 1, 64}, 61, 2), costs}, {}, true};
  double best_s = 0, named_s = 0;
  long evaluated = 0;
  const double search_ms = time_of(2, [&] {
    const auto found = planner::search_schedule(problem, alone);
    best_s = found->prediction.seconds;
    named_s = found->best_named_s;
    evaluated = found->evaluated;
  });
  std::printf("search: %.0f ms, %ld predictions, %.3f s; the best named one %.3f s\n", search_ms,
              evaluated, best_s, named_s);
  std::size_t found_bytes = 0;
  if (const auto found = planner::search_schedule(problem, alone); found)
    found_bytes = to_text(found->schedule).size();
  std::size_t named_bytes = 0;
  for (const Shape one : {Shape{32, 2, 512}, Shape{64, 2, 128}, Shape{128, 1, 512}})
    for (const auto name : names())
      if (const auto made = named(name, one))
        named_bytes = std::max(named_bytes, to_text(*made).size());
  std::printf("text: at most %zu bytes by name, %zu as found\n", named_bytes, found_bytes);
  const double memory_mb = static_cast<double>(peak_kib() - start_kib) / 1024;
  const auto wide =
      cluster::uniform_cluster("wide", *cluster::find_gpu_type("h100"), 128, 8, 400e9);
  std::size_t told_bytes = 0;
  if (const auto found = planner::search_schedule(problem, alone); found)
    told_bytes = plan::name_all(wide_plan(found->schedule, 4), wide).to_json().dump().size();
  std::printf("plan of 1,024 GPUs with TP 1 and its schedule: %zu bytes\n", told_bytes);

  const LargeJob job;
  const perf::PerformanceModel perf(job.entry.model, job.machines, job.coefficients,
                                    perf::Sends::counted);
  planner::Incremental::Options options;
  options.max_free = static_cast<int>(job.free.size());
  std::size_t rows = 0;
  int stages = 0;
  const double table_ms = time_of(1, [&] {
    auto table = planner::Incremental(options).solve(
        {perf, job.current, job.free, planner::Consistency::exact, true}, {});
    planner::add_modelled(table, perf);
    planner::filter_rows(table, planner::RowFilter::all());
    rows = table.rows.size();
    stages = table.rows.back().layout.pp();
  });
  std::printf("filtered table: %.0f ms, %zu rows, up to %d stages\n", table_ms, rows, stages);
  std::printf(
      "{\"nodes\": %zu, \"graph_ms\": %.3f, \"evaluate_ms\": %.3f, \"search_ms\": %.0f, "
      "\"search_gain\": %.4f, \"text_bytes\": %zu, \"found_text_bytes\": %zu, \"memory_mb\": %.1f, "
      "\"told_bytes\": %zu, \"table_ms\": %.0f}\n",
      nodes, graph_ms, evaluate_ms, search_ms, named_s / best_s, named_bytes, found_bytes,
      memory_mb, told_bytes, table_ms);
}
