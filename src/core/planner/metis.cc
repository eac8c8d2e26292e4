// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/metis.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

#include "core/count_of.h"
#include "core/planner/growing_plan.h"
#include "core/planner/refine.h"

namespace swell::planner {

namespace {

/// Search over at most `gpus`, in each order of their types.
class Search {
 public:
  Search(Evaluator& evaluator, const Metis::Options& options, int micro_batches, Solution best,
         const Budget& budget)
      : evaluator_(evaluator),
        options_(options),
        micro_batches_(micro_batches),
        best_(std::move(best)),
        budget_(budget),
        dp_step_(dp_step_of(evaluator.perf().model())),
        degrees_(degrees_for(evaluator.perf().model(), evaluator.micro_batch()).tp) {}

  void run(const Islands& gpus) {
    std::vector<int> types;
    for (const Island& island : gpus)
      if (std::find(types.begin(), types.end(), island.type) == types.end())
        types.push_back(island.type);
    std::sort(types.begin(), types.end());
    do {
      Islands ordered;
      for (int type : types)
        for (const Island& island : gpus)
          if (island.type == type) ordered.push_back(island);
      search(ordered);
    } while (std::next_permutation(types.begin(), types.end()) && !over());
  }
  Solution take() { return std::move(best_); }
  bool over() { return over_ || (++looks_ % 64 == 0 && (over_ = budget_.expired())); }

 private:
  void search(const Islands& gpus) {
    const int all = count(gpus);
    const int max = std::min(all, evaluator_.perf().model().layers);
    for (int stages = 1; stages <= max && !over(); ++stages) {
      const double even = static_cast<double>(all) / stages;
      const int min =
          std::max(1, static_cast<int>(std::ceil(options_.min_group_scale_variance * even)));
      const int largest =
          std::max(min, static_cast<int>(std::floor(even / options_.min_group_scale_variance)));
      std::vector<int> sizes;
      partition(gpus, all, stages, min, largest, sizes);
    }
  }

  /// Visits every non-decreasing list of `stages` sizes with sum `left`.
  void partition(const Islands& gpus, int left, int stages, int min, int largest,
                 std::vector<int>& sizes) {
    if (over()) return;
    if (stages == 0) {
      if (left == 0) permute(gpus, sizes);
      return;
    }
    for (int size = min; size <= largest && size * stages <= left; ++size) {
      sizes.push_back(size);
      partition(gpus, left - size, stages - 1, size, largest, sizes);
      sizes.pop_back();
    }
  }

  void permute(const Islands& gpus, std::vector<int> sizes) {
    if (static_cast<int>(sizes.size()) > options_.max_permute_len) {
      descend(gpus, sizes);
      std::reverse(sizes.begin(), sizes.end());
      descend(gpus, sizes);
      return;
    }
    do descend(gpus, sizes);
    while (std::next_permutation(sizes.begin(), sizes.end()) && !over());
  }

  /// Chooses the TP degrees of all stages: starts from each uniform degree and changes one stage at
  /// a time as long as the plan gets faster.
  void descend(const Islands& gpus, const std::vector<int>& sizes) {
    for (int start : degrees_) {
      std::vector<int> tp(sizes.size(), start);
      double now = attempt(gpus, sizes, tp);
      for (bool better = true; better && !over();) {
        better = false;
        for (std::size_t i = 0; i < tp.size(); ++i)
          for (int other : degrees_) {
            if (other == tp[i] || other > sizes[i]) continue;
            const int kept = tp[i];
            tp[i] = other;
            const double seconds = attempt(gpus, sizes, tp);
            if (seconds < now * (1 - 1e-9)) {
              now = seconds;
              better = true;
            } else {
              tp[i] = kept;
            }
          }
      }
    }
  }

  double attempt(const Islands& gpus, const std::vector<int>& sizes, const std::vector<int>& tp) {
    plan::Layout layout{micro_batches_, {}};
    Islands left = gpus, idle;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      plan::StageLayout stage{0, tp[i], {}};
      Islands mine = take_gpus(left, sizes[i]);
      take_groups(stage, mine, tp[i], 1 << 30, dp_step_);
      if (stage.groups.empty()) return std::numeric_limits<double>::infinity();
      add_all(idle, mine);
      layout.stages.push_back(std::move(stage));
    }
    const double seconds = evaluator_.finish(layout);
    if (seconds < best_.seconds)
      best_ = {std::move(layout), std::move(idle), seconds,
               fmt::format("search: {}", count_of(sizes.size(), "stage"))};
    return seconds;
  }

  /// Takes the first `wanted` GPUs out of `left` and returns them.
  static Islands take_gpus(Islands& left, int wanted) {
    Islands mine;
    for (Island& island : left) {
      plan::GpuMask taken = 0;
      while (wanted > 0 && island.gpus != 0) {
        const plan::GpuMask lowest = island.gpus & (~island.gpus + 1);
        taken |= lowest;
        island.gpus ^= lowest;
        --wanted;
      }
      if (taken != 0) mine.push_back({island.node, island.type, taken, island.part});
    }
    return mine;
  }

  Evaluator& evaluator_;
  const Metis::Options& options_;
  int micro_batches_;
  Solution best_;
  const Budget& budget_;
  int dp_step_;
  std::vector<int> degrees_;
  long looks_ = 0;
  bool over_ = false;
};

}  // namespace

ScaleTable Metis::solve(const Problem& problem, const Budget& budget) const {
  Evaluator evaluator(problem.perf, problem.current.micro_batch());
  evaluator.stop_by(budget);
  GrowingPlan plan(problem, evaluator);
  plan.write_row();
  bool complete = true;
  for (std::size_t i = 0; i < plan.free_gpus() && complete; ++i) {
    plan.add_gpu(i);
    if (options_.last_only && i + 1 < plan.free_gpus()) continue;
    Search search(evaluator, options_, problem.current.micro_batches, std::move(plan.best), budget);
    search.run(plan.gpus);
    complete = !search.over() || !budget.expired();
    plan.best = search.take();
    plan.write_row();
  }
  if (!complete) plan.give_up();
  return plan.take();
}

}  // namespace swell::planner
