// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/scheduled_plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

#include "core/count_of.h"
#include "core/perf/chunk_costs.h"
#include "core/schedule/named.h"

namespace swell::planner {

namespace {

constexpr double kWorthwhile = 1 - 1e-9;  // smaller gains keep the simpler plan, which comes first
constexpr std::size_t kPlacementsOfEach =
    2;  ///< kept for each number of chunks; a search may make them faster

bool fits(const schedule::Evaluation& prediction, const std::vector<double>& room) {
  for (std::size_t i = 0; i < room.size(); ++i)
    if (prediction.peak_bytes[i] > room[i]) return false;
  return true;
}

Error nothing_fits(const plan::Layout& skeleton, std::string_view name) {
  return Error(fmt::format(
      "no placement of the model's units on {} fits memory under schedule {}; give it more GPUs",
      count_of(skeleton.pp(), "stage"), name));
}

/// Returns the fastest of `placed` under the schedule that `make` returns for its shape.
template <typename Make>
Result<ScheduledPlan> best_under(const perf::PerformanceModel& perf, const plan::Layout& skeleton,
                                 std::vector<Placement> placed, std::string_view name,
                                 const Make& make) {
  const std::vector<double> room = memory_of_stages(perf, skeleton);
  ScheduledPlan best;
  best.found.prediction.seconds = std::numeric_limits<double>::infinity();
  for (Placement& one : placed) {
    auto made = make({skeleton.pp(), one.layout.chunks(), skeleton.micro_batches});
    if (!made) continue;
    auto graph = schedule::Graph::of(*made);
    if (!graph) return graph.error();
    schedule::Evaluation prediction = evaluate(*graph, perf::chunk_costs(perf, one.layout));
    ++best.found.evaluated;
    if (!fits(prediction, room) ||
        !(prediction.seconds < best.found.prediction.seconds * kWorthwhile))
      continue;
    best.layout = std::move(one.layout);
    best.placement = std::move(one.rule);
    best.found.schedule = std::move(*made);
    best.found.name = name;
    best.found.prediction = std::move(prediction);
  }
  if (best.layout.stages.empty()) return nothing_fits(skeleton, name);
  best.found.best_named = best.found.name;
  best.found.best_named_s = best.found.prediction.seconds;
  return best;
}

}  // namespace

std::vector<double> memory_of_stages(const perf::PerformanceModel& perf,
                                     const plan::Layout& layout) {
  std::vector<double> room;
  for (const plan::StageLayout& stage : layout.stages) {
    double least = std::numeric_limits<double>::infinity();
    for (const plan::GroupLayout& group : stage.groups)
      least = std::min(least, perf.cluster().type(group.type).memory_bytes);
    room.push_back(least);
  }
  return room;
}

Result<ScheduledPlan> best_scheduled(const perf::PerformanceModel& perf,
                                     const plan::Layout& skeleton, std::string_view name,
                                     Executor& executor, const Budget& budget, int max_chunks) {
  const auto& names = schedule::names();
  if (name != "search" && std::find(names.begin(), names.end(), name) == names.end())
    return Error(fmt::format("there is no schedule \"{}\"; there are search, {}", name,
                             fmt::join(names, ", ")));
  std::vector<Placement> placed;
  for (int chunks = 1; chunks <= max_chunks; ++chunks) {
    if (chunks > 1 && skeleton.pp() * chunks > perf.chain().units()) break;
    std::vector<Placement> all = placements(perf, skeleton, chunks);
    if (name == "search" && all.size() > kPlacementsOfEach) all.resize(kPlacementsOfEach);
    std::move(all.begin(), all.end(), std::back_inserter(placed));
  }
  if (placed.empty()) return nothing_fits(skeleton, name);
  if (name != "search")
    return best_under(perf, skeleton, std::move(placed), name,
                      [&](const schedule::Shape& shape) { return schedule::named(name, shape); });
  ScheduleProblem problem;
  problem.limit_bytes = memory_of_stages(perf, skeleton);
  for (const Placement& one : placed)
    problem.choices.push_back(perf::chunk_costs(perf, one.layout));
  auto found = search_schedule(problem, executor, budget);
  if (!found) return found.error();
  Placement& chosen = placed[found->choice];
  return ScheduledPlan{std::move(chosen.layout), std::move(chosen.rule), *std::move(found)};
}

Result<ScheduledPlan> with_schedule(const perf::PerformanceModel& perf,
                                    const plan::Layout& skeleton,
                                    const schedule::Schedule& schedule) {
  const int chunks = schedule.shape.chunks;
  if (auto good = check(schedule, {skeleton.pp(), chunks, skeleton.micro_batches}); !good)
    return good.error();
  return best_under(perf, skeleton, placements(perf, skeleton, chunks), "given",
                    [&](const schedule::Shape&) { return Result<schedule::Schedule>(schedule); });
}

}  // namespace swell::planner
