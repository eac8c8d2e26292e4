// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/plan_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/perf/peak_memory.h"

namespace swell::planner {

namespace {

// Tolerance: equal biases differ by rounding.
constexpr double kSame = 1e-9;

class Search {
 public:
  Search(const perf::PerformanceModel& perf, int micro_batches, const Grid& grid,
         const Islands& gpus, const std::optional<Pruning>& pruning, const Budget& budget)
      : perf_(perf),
        memory_(perf),
        micro_batches_(micro_batches),
        micro_batch_(perf.model().global_batch / micro_batches),
        grid_(grid),
        gpus_(gpus),
        pruning_(pruning),
        budget_(budget),
        degrees_(degrees_for(perf.model(), micro_batch_)),
        per_load_(count(gpus) / grid.load_of(0, grid.clusters().size())) {
    found_.seconds = std::numeric_limits<double>::infinity();
  }

  SearchedPlan run() {
    const int most = std::min(count(gpus_), static_cast<int>(grid_.clusters().size()));
    for (stages_ = 1; stages_ <= most; ++stages_)
      if (!pruning_ || pruning_->stages == stages_) add(0, count(gpus_), 0);
    if (found_.layout.stages.empty()) found_.seconds = 0;
    return std::move(found_);
  }

 private:
  /// Adds each possible next stage, which begins at cluster `first`. `bias`: squared bias so far.
  void add(std::size_t first, int left, double bias) {
    const int i = static_cast<int>(split_.layers.size()), after = stages_ - 1 - i;
    const std::vector<int>& clusters = grid_.clusters();
    if (after < 0) return evaluate();
    int layers = 0;
    for (std::size_t end = first + 1; end + static_cast<std::size_t>(after) <= clusters.size();
         ++end) {
      layers += clusters[end - 1];
      if (after == 0 && end != clusters.size()) continue;
      const double share = per_load_ * grid_.load_of(first, end);
      for (int gpus = 1; gpus + after <= left; gpus *= 2) {
        const double with = bias + (gpus - share) * (gpus - share);
        if ((after == 0 && gpus != left) || !is_balanced(with)) continue;
        for (const int tp : degrees_.tp) {
          if (!may_have(first, end, gpus, tp) || !fits(i, layers, gpus, tp)) continue;
          if (budget_.expired()) {
            found_.complete = false;
            return;
          }
          split_.layers.push_back(layers);
          split_.gpus.push_back(gpus);
          split_.tp.push_back(tp);
          add(end, left - gpus, with);
          split_.layers.pop_back();
          split_.gpus.pop_back();
          split_.tp.pop_back();
        }
      }
    }
  }

  bool is_balanced(double bias) const noexcept {
    return !pruning_ || std::sqrt(bias) <= pruning_->most_bias + kSame;
  }

  /// Returns whether the pruning allows these degrees for clusters [first, end).
  bool may_have(std::size_t first, std::size_t end, int gpus, int tp) const noexcept {
    if (!pruning_) return true;
    bool is_fixed = false;
    for (const FixedStage& one : pruning_->fixed) {
      if (one.first != first || one.end != end) continue;
      if (one.gpus == gpus && one.tp == tp) return true;
      is_fixed = true;
    }
    return !is_fixed;
  }

  bool fits(int i, int layers, int gpus, int tp) {
    if (tp > gpus || gpus % tp != 0) return false;
    const int dp = gpus / tp, type = gpus_.front().type;
    if (dp > degrees_.max_dp || !degrees_.divides(dp)) return false;
    return memory_.peak(i, stages_, micro_batches_, layers, tp, (micro_batch_ + dp - 1) / dp, type)
               .total() <= perf_.cluster().type(type).memory_bytes;
  }

  void evaluate() {
    plan::Layout layout{micro_batches_, {}};
    if (!place_stages(split_, gpus_, micro_batch_, layout)) return;
    ++found_.evaluated;
    const double seconds = perf_.iteration_time(layout).total();
    if (seconds >= found_.seconds) return;
    found_.seconds = seconds;
    found_.layout = std::move(layout);
  }

  const perf::PerformanceModel& perf_;
  perf::MemoryModel memory_;
  int micro_batches_, micro_batch_, stages_ = 0;
  const Grid& grid_;
  const Islands& gpus_;
  const std::optional<Pruning>& pruning_;
  const Budget& budget_;
  Degrees degrees_;
  double per_load_;
  StageSplit split_;
  SearchedPlan found_;
};

}  // namespace

std::optional<Pruning> pruning_by(const Grid& grid, const std::vector<CellPlans>& cells) {
  const CellPlans* best = nullptr;
  for (const CellPlans& cell : cells)
    if (cell.has_plan() && (best == nullptr || cell.best().seconds < best->best().seconds))
      best = &cell;
  if (best == nullptr) return std::nullopt;
  Pruning pruning{best->cell.stages, 0, {}};
  for (const CellPlan& plan : best->frontier) {
    pruning.most_bias = std::max(pruning.most_bias, plan.bias);
    std::size_t first = 0;
    for (const plan::StageLayout& stage : plan.layout.stages) {
      std::size_t end = first;
      for (int layers = 0; layers < stage.layers; ++end) layers += grid.clusters()[end];
      pruning.fixed.push_back({first, end, stage.dp() * stage.tp, stage.tp});
      first = end;
    }
  }
  return pruning;
}

SearchedPlan search_plans(const perf::PerformanceModel& perf, int micro_batches, const Grid& grid,
                          const Islands& gpus, const std::optional<Pruning>& pruning,
                          const Budget& budget) {
  return Search(perf, micro_batches, grid, gpus, pruning, budget).run();
}

}  // namespace swell::planner
