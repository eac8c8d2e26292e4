// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/initial_plans.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "core/planner/symmetric.h"

namespace swell::planner {

namespace {

// Combinations of degrees grow exponentially with the number of types.
constexpr std::size_t kMaxTypes = 3;
constexpr std::size_t kMaxNodes = 8;
constexpr int kFewGpus = 16;        // limit for plans that try every split in two
constexpr int kMaxMixedStages = 8;  // limit of stages that share GPUs of every type
// Limit of extra stages made of GPUs that equal stages leave over.
constexpr int kMaxLeftOverStages = 4;
// Plans up to this factor slower than the best are settled, which may make them the best.
constexpr double kSettleWithin = 1.1;
constexpr double kSlower = 1 - 1e-9;

class InitialPlans {
 public:
  InitialPlans(Evaluator& evaluator, int micro_batches, const Degrees& degrees)
      : evaluator_(evaluator), micro_batches_(micro_batches), degrees_(degrees) {}

  /// Sets the GPUs that the following plans do not use, but that refine() may use.
  void leave_out(Islands gpus) { left_out_ = std::move(gpus); }

  void symmetric(const Islands& gpus) {
    keep(best_symmetric(evaluator_, gpus, micro_batches_, degrees_, {}));
  }

  /// Adds plans with one stage for each part, for every combination of TP degrees (`same_tp`: one
  /// degree for all stages). `layout` holds the stages so far.
  void one_stage_each(const std::vector<Islands>& parts, plan::Layout layout, Islands idle,
                      bool same_tp) {
    if (layout.stages.size() == parts.size()) {
      const double seconds = evaluator_.finish(layout);
      keep({std::move(layout), std::move(idle), seconds,
            "from scratch: a stage for each part of the cluster"});
      return;
    }
    for (int tp : degrees_.tp) {
      if (evaluator_.over()) return;
      if (same_tp && !layout.stages.empty() && layout.stages[0].tp != tp) continue;
      Islands left = parts[layout.stages.size()];
      plan::StageLayout stage{0, tp, {}};
      if (take_groups(stage, left, tp, degrees_.max_dp, degrees_.dp_step) == 0) continue;
      plan::Layout longer = layout;
      longer.stages.push_back(std::move(stage));
      Islands rest = idle;
      add_all(rest, left);
      one_stage_each(parts, std::move(longer), std::move(rest), same_tp);
    }
  }

  /// Adds the best plan of two stages: the first GPUs and the others, for every split, slow types
  /// last and slow types first.
  void two_stages(Islands gpus) {
    std::sort(gpus.begin(), gpus.end(), [](const Island& a, const Island& b) {
      return std::pair(a.type, a.node) < std::pair(b.type, b.node);
    });
    cut_everywhere(gpus);
    if (gpus.front().type != gpus.back().type) cut_everywhere({gpus.rbegin(), gpus.rend()});
  }

  /// Adds the best plan, over all numbers of stages and TP degrees, whose stages have about equal
  /// speed and each have GPUs of every type.
  void dealt(Islands gpus) {
    fastest_first(gpus);
    Solution best = nothing("from scratch: every type dealt over all stages");
    for (int tp : degrees_.tp)
      for (int pp = 2; pp <= std::min(kMaxMixedStages, count(gpus) / tp); ++pp)
        try_dealt({micro_batches_, {}}, gpus, pp, tp, best);
    keep(std::move(best));
  }

  /// Adds the best plans of stages with equal groups, whose number divides the micro-batch: with
  /// every stage within a node; with some stages over several nodes, too; with one stage over all
  /// nodes. Remaining GPUs form further stages.
  void even_stages(Islands gpus) {
    fastest_first(gpus);
    const struct {
      bool within_nodes;
      int max_wide;  // limit of stages over several nodes
      const char* why;
    } ways[] = {{true, 0, "from scratch: even stages within nodes, the rest dealt"},
                {true, kMaxMixedStages,
                 "from scratch: even stages within and across nodes, the rest dealt"},
                {false, 1, "from scratch: one wide stage, the rest dealt"}};
    for (const auto& way : ways) {
      Solution best = nothing(way.why);
      for (int dp = 1; dp <= std::min(degrees_.max_dp, count(gpus)); ++dp) {
        if (evaluator_.over()) break;
        if (evaluator_.micro_batch() % dp != 0 || !degrees_.divides(dp)) continue;
        for (int tp : degrees_.tp) {
          plan::Layout layout{micro_batches_, {}};
          Islands left = way.within_nodes ? cut_within_nodes(gpus, dp, tp, layout) : gpus;
          if (cut_wide(left, dp, tp, way.max_wide, layout) == 0 && way.max_wide > 0) continue;
          if (layout.stages.empty() || layout.pp() > kMaxMixedStages) continue;
          try_skeleton(layout, left, best);
          for (int more = 1; more <= std::min(kMaxLeftOverStages, count(left)); ++more)
            for (int left_tp : degrees_.tp)
              if (left_tp * more <= count(left)) try_dealt(layout, left, more, left_tp, best);
        }
      }
      keep(std::move(best));
    }
  }

  std::vector<Solution> take() {
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Solution& a, const Solution& b) { return a.seconds < b.seconds; });
    return std::move(found_);
  }

 private:
  static Solution nothing(const char* why) {
    return {{}, {}, std::numeric_limits<double>::infinity(), why};
  }

  void fastest_first(Islands& gpus) const {
    const auto speed = [&](const Island& island) { return evaluator_.speed(island.type); };
    std::sort(gpus.begin(), gpus.end(), [&](const Island& a, const Island& b) {
      return std::tuple(-speed(a), a.type, -a.count(), a.node) <
             std::tuple(-speed(b), b.type, -b.count(), b.node);
    });
  }

  /// Tries the stages in both orders: memory and hidden synchronization depend on the position in
  /// the pipeline.
  void try_skeleton(plan::Layout layout, const Islands& idle, Solution& best) {
    for (bool turned : {false, true}) {
      if (turned) std::reverse(layout.stages.begin(), layout.stages.end());
      plan::Layout finished = layout;
      double seconds = evaluator_.finish(finished, best.seconds * kSettleWithin);
      if (seconds < best.seconds * kSettleWithin) seconds = evaluator_.settle(finished, seconds);
      if (seconds < best.seconds) best = {std::move(finished), idle, seconds, best.why};
    }
  }

  /// Tries `layout` with `more` stages, made of `gpus` (fast types first): each group goes to the
  /// slowest stage so far.
  void try_dealt(plan::Layout layout, const Islands& gpus, int more, int tp, Solution& best) {
    const std::size_t first = layout.stages.size();
    layout.stages.resize(first + static_cast<std::size_t>(more), {0, tp, {}});
    std::vector<double> speeds(layout.stages.size());
    Islands idle;
    for (const Island& island : gpus) {
      Islands left = {island};
      while (count(left) >= tp) {
        std::size_t slowest = layout.stages.size();
        for (std::size_t i = first; i < layout.stages.size(); ++i)
          if (layout.stages[i].dp() < degrees_.max_dp &&
              (slowest == layout.stages.size() || speeds[i] < speeds[slowest] * kSlower))
            slowest = i;
        if (slowest == layout.stages.size()) break;
        take_groups(layout.stages[slowest], left, tp, 1);
        speeds[slowest] += evaluator_.speed(island.type);
      }
      add_all(idle, left);
    }
    if (!layout.stages.back().groups.empty()) try_skeleton(std::move(layout), idle, best);
  }

  /// Appends stages of `dp` groups, each within one island. Returns the remaining GPUs.
  static Islands cut_within_nodes(const Islands& gpus, int dp, int tp, plan::Layout& layout) {
    Islands left_over;
    for (const Island& island : gpus) {
      Islands left = {island};
      while (count(left) >= dp * tp) {
        plan::StageLayout& stage = layout.stages.emplace_back(plan::StageLayout{0, tp, {}});
        take_groups(stage, left, tp, dp);
      }
      add_all(left_over, left);
    }
    return left_over;
  }

  /// Appends at most `max` stages of `dp` groups of the fastest GPUs, which it takes out of `gpus`.
  /// Returns the number of stages.
  static int cut_wide(Islands& gpus, int dp, int tp, int max, plan::Layout& layout) {
    for (int cut = 0; cut < max; ++cut) {
      Islands left = gpus;
      plan::StageLayout stage{0, tp, {}};
      if (take_groups(stage, left, tp, dp) < dp) return cut;
      layout.stages.push_back(std::move(stage));
      gpus = std::move(left);
    }
    return max;
  }

  void cut_everywhere(const Islands& gpus) {
    Solution best;
    best.seconds = std::numeric_limits<double>::infinity();
    Islands front, rear = gpus;
    while (count(rear) > 1) {
      Island& next = rear.front();
      const plan::GpuMask gpu = next.gpus & (~next.gpus + 1);
      add_to(front, next.node, next.type, gpu, next.part);
      next.gpus ^= gpu;
      if (next.gpus == 0) rear.erase(rear.begin());
      for (int front_tp : degrees_.tp)
        for (int rear_tp : degrees_.tp) {
          Islands idle = front, left = rear;
          plan::Layout layout{micro_batches_, {{0, front_tp, {}}, {0, rear_tp, {}}}};
          const auto take = [&](plan::StageLayout& stage, Islands& from) {
            return take_groups(stage, from, stage.tp, degrees_.max_dp, degrees_.dp_step) > 0;
          };
          if (!take(layout.stages[0], idle) || !take(layout.stages[1], left)) continue;
          const double seconds = evaluator_.finish(layout, best.seconds);
          if (!(seconds < best.seconds)) continue;
          add_all(idle, left);
          best = {std::move(layout), std::move(idle), seconds, "from scratch: two stages"};
        }
    }
    keep(std::move(best));
  }

  void keep(Solution found) {
    if (!(found.seconds < std::numeric_limits<double>::infinity())) return;
    add_all(found.idle, left_out_);
    found_.push_back(std::move(found));
  }
  Evaluator& evaluator_;
  int micro_batches_;
  const Degrees& degrees_;
  Islands left_out_;
  std::vector<Solution> found_;
};

/// Splits `gpus` into parts whose islands have equal `key`.
template <typename Key>
std::vector<Islands> split_by(const Islands& gpus, const Key& key) {
  std::vector<std::pair<decltype(key(gpus.front())), Islands>> parts;
  for (const Island& island : gpus) {
    const auto mine = key(island);
    auto part = std::find_if(parts.begin(), parts.end(),
                             [&](const auto& one) { return one.first == mine; });
    if (part == parts.end()) part = parts.insert(parts.end(), {mine, {}});
    part->second.push_back(island);
  }
  std::vector<Islands> result;
  for (auto& [value, islands] : parts) result.push_back(std::move(islands));
  return result;
}

/// Returns the islands of `all` that `part` does not have.
Islands rest_of(const Islands& all, const Islands& part) {
  Islands rest;
  for (const Island& island : all)
    if (std::none_of(part.begin(), part.end(), [&](const Island& one) {
          return plan::together(one, island) && one.type == island.type;
        }))
      rest.push_back(island);
  return rest;
}

}  // namespace

std::vector<Solution> initial_plans(Evaluator& evaluator, const Islands& gpus, int micro_batches,
                                    const Degrees& degrees) {
  InitialPlans starts(evaluator, micro_batches, degrees);
  const auto types = split_by(gpus, [](const Island& island) { return island.type; });
  const auto nodes =
      split_by(gpus, [](const Island& island) { return std::pair(island.node, island.part); });
  const bool few = count(gpus) <= kFewGpus;
  // Leaving out a slow type or node may be faster.
  std::vector<Islands> subsets = {gpus};
  if (types.size() > 1 && types.size() <= kMaxTypes)
    subsets.insert(subsets.end(), types.begin(), types.end());
  if (few && nodes.size() > 1) subsets.insert(subsets.end(), nodes.begin(), nodes.end());
  if (few && nodes.size() > 2 && nodes.size() <= kMaxNodes)
    for (const Islands& node : nodes) subsets.push_back(rest_of(gpus, node));
  for (const Islands& subset : subsets) {
    starts.leave_out(rest_of(gpus, subset));
    starts.symmetric(subset);
    // One stage with each TP degree: unlike in symmetric(), its samples may be uneven.
    starts.one_stage_each({subset}, {micro_batches, {}}, {}, false);
    if (few) {
      starts.two_stages(subset);
      starts.dealt(subset);
      starts.even_stages(subset);
    }
    const auto parts =
        split_by(subset, [](const Island& island) { return std::pair(island.node, island.part); });
    if (parts.size() > 1 && parts.size() <= kMaxNodes)
      starts.one_stage_each(parts, {micro_batches, {}}, {}, true);
  }
  starts.leave_out({});
  if (types.size() > 1 && types.size() <= kMaxTypes) {
    starts.one_stage_each(types, {micro_batches, {}}, {}, false);
    starts.one_stage_each({types.rbegin(), types.rend()}, {micro_batches, {}}, {}, false);
  }
  return starts.take();
}

}  // namespace swell::planner
