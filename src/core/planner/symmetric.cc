// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/symmetric.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "core/planner/growing_plan.h"

namespace swell::planner {

namespace {

/// Makes `pp` stages of `dp` groups of `tp` GPUs each. Returns false if `idle` has too few GPUs in
/// whole groups.
bool fill(plan::Layout& layout, Islands& idle, int pp, int dp, int tp) {
  for (int i = 0; i < pp; ++i) {
    plan::StageLayout stage{0, tp, {}};
    if (take_groups(stage, idle, tp, dp) < dp) return false;
    layout.stages.push_back(std::move(stage));
  }
  return true;
}

ScaleTable solve_in(const Problem& problem, const Budget& budget, SymmetricSpace space) {
  Evaluator evaluator(problem.perf, problem.current.micro_batch());
  evaluator.stop_by(budget);
  const auto degrees = degrees_for(problem.perf.model(), evaluator.micro_batch());
  GrowingPlan plan(problem, evaluator);
  for (std::size_t rows = 0; rows <= plan.free_gpus(); ++rows) {
    if (budget.expired()) {
      plan.give_up();
      break;
    }
    if (rows > 0) {
      plan.add_gpu(rows - 1);
      Solution found =
          best_symmetric(evaluator, plan.gpus, problem.current.micro_batches, degrees, space);
      if (found.seconds < plan.best.seconds) plan.best = std::move(found);
    }
    plan.write_row();
  }
  if (evaluator.over()) plan.give_up();
  return plan.take();
}

}  // namespace

Solution best_symmetric(Evaluator& evaluator, const Islands& gpus, int micro_batches,
                        const Degrees& degrees, SymmetricSpace space) {
  Solution best;
  best.seconds = std::numeric_limits<double>::infinity();
  const int all = count(gpus), layers = evaluator.perf().model().layers;
  for (int tp : degrees.tp) {
    if (space.tp != 0 && space.tp != tp) continue;
    int groups = 0;
    for (const Island& island : gpus) groups += island.count() / tp;
    if (groups == 0) break;
    const int first_pp = space.pp != 0 ? space.pp : 1;
    const int last_pp = space.pp != 0 ? space.pp : std::min({groups, layers, all});
    for (int pp = last_pp; pp >= first_pp && !evaluator.over(); --pp) {
      int dp = std::min(groups / pp, evaluator.micro_batch());
      // Local batches must be equal, and EP must divide the ranks.
      while (dp > 0 && (evaluator.micro_batch() % dp != 0 || !degrees.divides(dp))) --dp;
      if (dp == 0) continue;
      // Skip numbers of GPUs whose lower bound is not better than the best so far.
      if (evaluator.ideal_seconds(gpus, pp * dp * tp, micro_batches) >= best.seconds) continue;
      plan::Layout layout{micro_batches, {}};
      Islands idle = gpus;
      if (!fill(layout, idle, pp, dp, tp)) continue;
      const double seconds = evaluator.finish(layout, best.seconds);
      if (!(seconds < best.seconds)) continue;
      best = {std::move(layout), std::move(idle), seconds,
              fmt::format("symmetric: pp{} dp{} tp{}", pp, dp, tp / evaluator.perf().model().cp)};
    }
  }
  return best;
}

ScaleTable Symmetric::solve(const Problem& problem, const Budget& budget) const {
  return solve_in(problem, budget, {});
}

ScaleTable DpOnly::solve(const Problem& problem, const Budget& budget) const {
  return solve_in(problem, budget, {problem.current.pp(), problem.current.stages.front().tp});
}

}  // namespace swell::planner
