// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/exhaustive.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

#include "core/planner/growing_plan.h"
#include "core/planner/stage_options.h"
#include "core/planner/symmetric.h"

namespace swell::planner {

namespace {

/// Limits of the search's memory, each about a gigabyte.
constexpr std::size_t kMaxStates = std::size_t{1} << 24, kMaxLabels = std::size_t{1} << 25;
// Required share of the old time; smaller gains are rounding.
constexpr double kWorthwhile = 1 - 1e-12;

/// The last stages of a pipeline, reduced to what affects the stages in front. `sum`, `slowest` and
/// `extra` only add to the iteration time for any stages in front, so a label is no worse than
/// another if none of the three is larger.
struct Label {
  double sum;           ///< sum of the stages' times, which is their part of the warm-up
  double slowest;       ///< time of the slowest stage
  double extra;         ///< max over i of (extra_i - backward passes of the stages in front of i)
  int option;           ///< index of the front stage's option
  int layers;           ///< layers of the front stage
  std::int64_t behind;  ///< index of the label behind the front stage; -1: none

  bool no_worse(const Label& other) const {
    return sum <= other.sum && slowest <= other.slowest && extra <= other.extra;
  }
};

/// Search of one call. A state is (GPUs left by island, layers left); a level is the number of
/// stages so far.
class Search {
 public:
  Search(const Problem& problem, Evaluator& evaluator, const Islands& gpus, Solution bound)
      : problem_(problem),
        evaluator_(evaluator),
        gpus_(gpus),
        best_(std::move(bound)),
        layers_(evaluator.perf().model().layers),
        micro_batches_(problem.current.micro_batches) {
    options_ = stage_options(problem, evaluator, gpus);
    for (const Island& island : gpus) radix_.push_back(island.count() + 1);
    states_ = static_cast<std::size_t>(layers_ + 1);
    for (int radix : radix_)
      states_ = std::min(states_ * static_cast<std::size_t>(radix), kMaxStates + 1);
  }

  /// Returns false if the states exceeded the memory limit or time was up.
  bool complete() { return states_ <= kMaxStates && !over(); }

  Solution run() {
    if (states_ > kMaxStates) return std::move(best_);
    std::vector<std::vector<std::int64_t>> level(states_);
    level[state_of(full(), layers_)].push_back(-1);
    const int max_stages = std::min(layers_, count(gpus_));
    for (int stages = 1; stages <= max_stages && !over(); ++stages) {
      std::vector<std::vector<std::int64_t>> next(states_);
      bool any = false;
      for (std::size_t state = 0; state < states_; ++state)
        if (!level[state].empty()) any |= extend(state, level[state], stages, next);
      if (!any) break;
      level = std::move(next);
    }
    return std::move(best_);
  }

 private:
  bool over() { return labels_.size() > kMaxLabels || evaluator_.over(); }
  std::vector<int> full() const {
    std::vector<int> left;
    for (int radix : radix_) left.push_back(radix - 1);
    return left;
  }
  std::size_t state_of(const std::vector<int>& left, int layers) const {
    std::size_t state = static_cast<std::size_t>(layers);
    for (std::size_t c = 0; c < left.size(); ++c)
      state = state * static_cast<std::size_t>(radix_[c]) + static_cast<std::size_t>(left[c]);
    return state;
  }
  void read_state(std::size_t state, std::vector<int>& left, int& layers) const {
    for (std::size_t c = radix_.size(); c-- > 0;) {
      left[c] = static_cast<int>(state % static_cast<std::size_t>(radix_[c]));
      state /= static_cast<std::size_t>(radix_[c]);
    }
    layers = static_cast<int>(state);
  }

  /// Puts every possible stage in front of the labels of one state. `stages`: their number
  /// including the new one.
  bool extend(std::size_t state, const std::vector<std::int64_t>& labels, int stages,
              std::vector<std::vector<std::int64_t>>& next) {
    bool any = false;
    std::vector<int> left(radix_.size()), rest(radix_.size());
    int layers = 0;
    read_state(state, left, layers);
    for (std::size_t o = 0; o < options_.size() && !over(); ++o) {
      const StageOption& option = options_[o];
      bool room = true;
      for (std::size_t c = 0; c < left.size() && room; ++c) {
        rest[c] = left[c] - option.gpus[c];
        room = rest[c] >= 0;
      }
      if (!room) continue;
      // Memory depends on the number of stages behind and on whether the stage is the first.
      if (layers <= max_layers(option, 0, stages))
        finish(labels, static_cast<int>(o), layers, stages);
      const double speed = ideal_speed(rest);
      const int max = std::min(layers - 1, max_layers(option, 1, 1 + stages));
      for (int l = 1; l <= max && speed > 0; ++l) {
        // Lower bound of a stage time for the remaining layers: all remaining GPUs, perfectly used.
        const double ideal = (layers - l) / speed;
        const std::size_t to = state_of(rest, layers - l);
        for (std::int64_t behind : labels) {
          const Label label = in_front(behind, static_cast<int>(o), l);
          const double bound =
              label.sum + ideal + (micro_batches_ - 1) * std::max(label.slowest, ideal);
          if (bound >= best_.seconds * kWorthwhile) continue;
          any |= keep(label, next[to]);
        }
      }
    }
    return any;
  }

  int max_layers(const StageOption& option, int i, int pp) const {
    int max = 1 << 30;
    const int dp = std::accumulate(option.gpus.begin(), option.gpus.end(), 0) / option.tp;
    for (const auto& [type, samples] : option.fullest)
      max = std::min(
          max, evaluator_.memory().max_layers(i, pp, micro_batches_, option.tp, samples, type, dp));
    return max;
  }

  Label in_front(std::int64_t behind, int o, int layers) const {
    const StageOption& option = options_[static_cast<std::size_t>(o)];
    const double comp = option.comp * layers, bwd = option.bwd * layers,
                 extra = option.extra * layers;
    if (behind < 0)
      return {comp + option.heads_comp, comp + option.heads_comp, extra, o, layers, -1};
    const Label& label = labels_[static_cast<std::size_t>(behind)];
    return {label.sum + comp,
            std::max(label.slowest, comp),
            std::max(extra, label.extra - bwd),
            o,
            layers,
            behind};
  }

  bool keep(const Label& label, std::vector<std::int64_t>& there) {
    for (std::int64_t other : there)
      if (labels_[static_cast<std::size_t>(other)].no_worse(label)) return false;
    std::erase_if(there, [&](std::int64_t other) {
      return label.no_worse(labels_[static_cast<std::size_t>(other)]);
    });
    there.push_back(static_cast<std::int64_t>(labels_.size()));
    labels_.push_back(label);
    return true;
  }

  void finish(const std::vector<std::int64_t>& labels, int o, int layers, int stages) {
    for (std::int64_t behind : labels) {
      const Label label = in_front(behind, o, layers);
      const double seconds =
          label.sum + (micro_batches_ - 1) * label.slowest + std::max(label.extra, 0.0);
      if (!(seconds < best_.seconds * kWorthwhile)) continue;
      best_ = build(label, stages);
      best_.seconds = evaluator_.seconds(best_.layout);
    }
  }

  Solution build(const Label& front, int stages) const {
    Solution found;
    found.layout.micro_batches = micro_batches_;
    found.idle = gpus_;
    found.why = "the best of all plans";
    const Label* label = &front;
    for (int i = 0; i < stages; ++i) {
      found.layout.stages.push_back(build_stage(options_[static_cast<std::size_t>(label->option)],
                                                label->layers, found.idle, gpus_));
      if (label->behind >= 0) label = &labels_[static_cast<std::size_t>(label->behind)];
    }
    std::erase_if(found.idle, [](const Island& island) { return island.gpus == 0; });
    return found;
  }

  /// Upper bound of the layers a second that the remaining GPUs compute, for whole micro-batches.
  double ideal_speed(const std::vector<int>& left) const {
    double speed = 0;
    for (std::size_t c = 0; c < left.size(); ++c) {
      const perf::TypeCoefficients& k =
          evaluator_.perf().coefficients().types[static_cast<std::size_t>(gpus_[c].type)];
      speed += left[c] / (k.comp_s * (1 + k.backward) * evaluator_.micro_batch());
    }
    return speed;
  }

  const Problem& problem_;
  Evaluator& evaluator_;
  const Islands& gpus_;
  Solution best_;
  int layers_;
  int micro_batches_;
  std::vector<StageOption> options_;
  std::vector<int> radix_;
  std::size_t states_ = 0;
  std::vector<Label> labels_;
};

}  // namespace

Solution best_of_all(const Problem& problem, Evaluator& evaluator, const Islands& gpus,
                     Solution bound, bool& complete) {
  Search search(problem, evaluator, gpus, std::move(bound));
  Solution found = search.run();
  complete = search.complete();
  return found;
}

ScaleTable Exhaustive::solve(const Problem& problem, const Budget& budget) const {
  Evaluator evaluator(problem.perf, problem.current.micro_batch());
  evaluator.stop_by(budget);
  bool complete = true;
  GrowingPlan plan(problem, evaluator);
  plan.write_row();
  for (std::size_t i = 0; i < plan.free_gpus(); ++i) {
    plan.add_gpu(i);
    if (options_.last_only && i + 1 < plan.free_gpus()) continue;
    if (complete && budget.expired()) complete = false;
    if (!complete) break;
    plan.best = best_of_all(problem, evaluator, plan.gpus, std::move(plan.best), complete);
    plan.write_row();
  }
  if (!complete) plan.give_up();
  return plan.take();
}

}  // namespace swell::planner
