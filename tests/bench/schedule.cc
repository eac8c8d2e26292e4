// SPDX-License-Identifier: GPL-2.0-or-later
// Measures how fast schedules are predicted and searched on one core, and the length of their text.
// Times are processor time, the minimum of several runs. Last line: JSON.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

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
  std::printf(
      "{\"nodes\": %zu, \"graph_ms\": %.3f, \"evaluate_ms\": %.3f, \"search_ms\": %.0f, "
      "\"search_gain\": %.4f, \"text_bytes\": %zu, \"found_text_bytes\": %zu, \"memory_mb\": %.1f}\n",
      nodes, graph_ms, evaluate_ms, search_ms, named_s / best_s, named_bytes, found_bytes,
      static_cast<double>(peak_kib() - start_kib) / 1024);
}
