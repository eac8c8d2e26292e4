// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/incremental.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/planner/affinity.h"
#include "core/planner/chunked.h"
#include "core/planner/combination.h"
#include "core/planner/initial_plans.h"
#include "core/planner/plan_search.h"
#include "core/planner/refine.h"

namespace swell::planner {

namespace {

// Gain required of a plan from scratch, since it moves all state.
constexpr double kFreshGain = 1.01;
constexpr double kWorthwhile = 1 - 1e-9;
// Maximum number of GPUs added in one step in the paper. A job with more than kMaxUnits such units
// adds several nodes in one step.
constexpr int kNodeGpus = 8;
constexpr int kMaxUnits = 64;
// Maximum number of stages for several rounds of refine(): the time of a round grows with the
// square of the stages.
constexpr int kManyStages = 8;
// Number of plans from scratch that are refined: the fastest ones that take at most kPromising
// times as long as the plan found. The second figures are for up to kFewGpus GPUs.
constexpr std::size_t kMaxFresh = 6, kMaxFreshFew = 32;
constexpr int kFewGpus = 16;
constexpr double kPromising = 1.0, kPromisingFew = 2.0;

/// Cuts `order` into units that are added in one step: at most `group` GPUs of one type, and of one
/// node unless `group` is more than a node's 8.
std::vector<Islands> units_of(const std::vector<cluster::GpuRef>& order, int group,
                              const cluster::Cluster& cluster) {
  std::vector<Islands> units;
  int in_last = 0;
  for (const cluster::GpuRef gpu : order) {
    const int type = cluster.type_of(gpu);
    const bool joins = !units.empty() && in_last < group && units.back().back().type == type &&
                       (group > kNodeGpus || plan::together(units.back().back(), gpu));
    if (!joins) {
      units.emplace_back();
      in_last = 0;
    }
    add_to(units.back(), gpu.node, type, plan::GpuMask{1} << gpu.index, gpu.part);
    ++in_last;
  }
  return units;
}

/// Keeps only starts with as many stages as Arena's best cell, and adds that cell's best plan.
void prune(std::vector<Solution>& starts, const Islands& all, int micro_batches,
           const perf::PerformanceModel& perf) {
  if (!has_cells(all, perf.model())) return;
  const auto cells = Grid(perf, micro_batches).cells(all, {});
  const CellPlan* best = best_plan(cells);
  if (best == nullptr) return;
  std::erase_if(starts, [&](const Solution& one) { return one.layout.pp() != best->layout.pp(); });
  Solution added{best->layout, {}, best->seconds, "the best plan of Arena's cells"};
  const auto behind =
      std::upper_bound(starts.begin(), starts.end(), added,
                       [](const Solution& a, const Solution& b) { return a.seconds < b.seconds; });
  starts.insert(behind, std::move(added));
}

/// Refines `found`. Then tries plans from scratch over `all` its GPUs, and replaces `found` if the
/// gain is worth moving the state.
void improve(Solution& found, const Islands& all, Evaluator& evaluator, int micro_batches,
             const Degrees& degrees, KnownRounds& known, const Incremental::Options& options,
             const perf::PerformanceModel& perf) {
  const auto rounds = [&](const Solution& one) {
    return one.layout.pp() > kManyStages ? std::min(options.refine_rounds, 1)
                                         : options.refine_rounds;
  };
  const bool few = count(all) <= kFewGpus;
  refine(found, evaluator, degrees, known, rounds(found), few, options.executor.get());
  if (!options.fresh || count(all) > options.fresh_gpus) return;
  std::vector<Solution> starts = initial_plans(evaluator, all, micro_batches, degrees);
  const double promising = found.seconds * (few ? kPromisingFew : kPromising);
  if (starts.size() > (few ? kMaxFreshFew : kMaxFresh))
    starts.resize(few ? kMaxFreshFew : kMaxFresh);
  while (!starts.empty() && starts.back().seconds > promising) starts.pop_back();
  if (options.prunes) prune(starts, all, micro_batches, perf);
  refine_each(starts, evaluator, degrees, known, rounds, options.executor.get());
  for (Solution& start : starts)
    if (start.seconds * kFreshGain < found.seconds) found = std::move(start);
}

/// Adds `skeleton` to `seen`, without layers, which chunked() ignores. Returns false if it is there
/// already: what chunked() finds for it a second time is not faster than the row before.
bool is_new(const plan::Layout& skeleton, std::vector<plan::Layout>& seen) {
  plan::Layout without_layers = skeleton;
  for (plan::StageLayout& stage : without_layers.stages) stage.layers = 0;
  if (std::find(seen.begin(), seen.end(), without_layers) != seen.end()) return false;
  seen.push_back(std::move(without_layers));
  return true;
}

}  // namespace

ScaleTable Incremental::solve(const Problem& problem, const Budget& budget) const {
  const cluster::Cluster& cluster = problem.perf.cluster();
  const bool exact = problem.consistency == Consistency::exact;
  Evaluator evaluator(problem.perf, problem.current.micro_batch(), exact);
  evaluator.stop_by(budget);
  const Degrees degrees = degrees_for(problem.perf.model(), evaluator.micro_batch());
  KnownRounds known;

  ScaleTable table;
  table.order = affinity_order(problem.current, problem.free, cluster);
  const int have = problem.current.gpu_count();
  const int max = options_.max_free > 0 ? options_.max_free : have;
  if (static_cast<int>(table.order.size()) > max) table.order.resize(static_cast<std::size_t>(max));
  // The paper derives w from the job's size. A job that can grow to more than four times its size
  // uses a quarter of the size that it can reach.
  const int reached = have + static_cast<int>(table.order.size());
  const int size = std::max(have, reached / 4);
  const int group = options_.group > 0
                        ? options_.group
                        : std::min((size + 15) / 16,
                                   std::max(kNodeGpus, size / kMaxUnits / kNodeGpus * kNodeGpus));
  const std::vector<Islands> units = units_of(table.order, group, cluster);

  std::vector<Solution> best = {
      {problem.current, {}, evaluator.seconds(problem.current), "the current plan"}};
  Islands all;  // all GPUs of the job so far, for plans from scratch
  for (const plan::StageLayout& stage : problem.current.stages) add_stage(all, stage);
  int gpus = have;
  auto add_row = [&](const Solution& found) {
    table.rows.push_back(
        {{gpus, problem.perf.model().global_batch / found.seconds}, found.layout, found.why});
  };
  add_row(best.back());
  const bool takes_chunks = exact && (problem.takes_chunks || problem.current.has_chunks()) &&
                            is_uniform(problem.current);
  InOrder in_order;
  Executor* const search = !options_.searches  ? nullptr
                           : options_.executor ? options_.executor.get()
                                               : &in_order;
  if (takes_chunks && problem.current.pp() > 1)
    if (auto again = chunked(evaluator, problem.current, best.back().seconds / kFreshGain, search))
      table.again = ScaleRow{{have, problem.perf.model().global_batch / again->seconds},
                             std::move(again->layout),
                             std::move(again->why)};
  // The last row, which may have chunks; plans in `best` have none, except the job's own.
  Solution shown = best.back();
  std::vector<plan::Layout> with_chunks;  // skeletons that chunked() has seen
  for (std::size_t i = 1; i <= units.size(); ++i) {
    if (budget.expired()) {
      table.complete = false;
      break;
    }
    Solution found = best[i - 1];
    found.why = "nothing better: the new GPUs stay idle";
    if (options_.carry_idle) add_all(found.idle, units[i - 1]);
    Islands more;
    Candidate deepest;  // candidate with the most stages
    const std::size_t oldest = i > static_cast<std::size_t>(options_.window)
                                   ? i - static_cast<std::size_t>(options_.window)
                                   : 0;
    for (std::size_t j = i; j-- > oldest;) {
      add_all(more, units[j]);  // the paper's units j + 1 to i
      Islands usable = more;
      if (options_.carry_idle) add_all(usable, best[j].idle);
      expand(best[j].layout, usable, degrees, problem.consistency, [&](Candidate&& candidate) {
        if (takes_chunks && candidate.layout.pp() > deepest.layout.pp()) deepest = candidate;
        const double seconds = evaluator.finish(candidate.layout, found.seconds);
        if (!(seconds < found.seconds * kWorthwhile)) return;
        found.why = candidate.story(problem.perf.model().cp);
        found.seconds = seconds;
        found.layout = std::move(candidate.layout);
        found.idle = std::move(candidate.idle);
      });
    }
    add_all(all, units[i - 1]);
    gpus += count(units[i - 1]);
    if (!exact)
      improve(found, all, evaluator, problem.current.micro_batches, degrees, known, options_,
              problem.perf);
    best.push_back(std::move(found));
    if (!takes_chunks) {
      add_row(best.back());
      continue;
    }
    if (best.back().seconds < shown.seconds * kWorthwhile) {
      shown = best.back();
    } else {
      shown.why = best[0].why == shown.why ? "nothing better: the new GPUs stay idle" : shown.why;
    }
    for (const plan::Layout* skeleton : {&best.back().layout, &deepest.layout})
      if (skeleton->pp() > 1 && is_new(*skeleton, with_chunks))
        if (auto found_chunks = chunked(evaluator, *skeleton, shown.seconds / kFreshGain, search))
          shown = *std::move(found_chunks);
    add_row(shown);
  }
  table.complete = table.complete && !evaluator.over() && !budget.expired();
  table.evaluated = evaluator.evaluated();
  leave_out_indivisible(table, problem.perf.model());
  return table;
}

}  // namespace swell::planner
