// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/refine.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/mutex.h"

namespace swell::planner {

namespace {

// Maximum DP degree of a stage that is split at every position.
constexpr std::size_t kSmallStage = 16;
// Maximum number of stages of a plan that is split at every position.
constexpr int kFewStages = 4;
constexpr int kManyStages = 6;  // in plans with more stages, only neighbours exchange GPUs
/// In a stage with more nodes, only the ends of a run of equal nodes are tried.
constexpr std::size_t kManyNodes = 64;
constexpr std::size_t kRunnersUp = 12;  // number of worse changes that are refined further
constexpr int kDeepRounds = 2;
constexpr std::size_t kAtOnce = 4;  // plans that one thread refines in one task
constexpr double kFarBehind = 1.5;  // a change slower by this factor is not remembered
// Maximum share of the old time for a change to count as better.
constexpr double kWorthwhile = 1 - 1e-9;

/// Tries changes of one plan and keeps the best.
class Search {
 public:
  /// `runners_up`: number of changes to remember that are not better themselves but may lead to a
  /// better plan.
  Search(const Solution& base, Evaluator& evaluator, std::size_t runners_up)
      : base_(base),
        evaluator_(evaluator),
        best_seconds_(base.seconds),
        max_runners_up_(runners_up) {}

  /// Returns a copy of the plan, for the caller to change and pass to one of the functions below.
  /// All changes reuse its memory: there are many, and few are kept.
  plan::Layout& layout() {
    layout_ = base_.layout;
    return layout_;
  }
  /// Returns a copy of the plan's idle GPUs, used in the same way.
  Islands& idle() {
    idle_ = base_.idle;
    return idle_;
  }

  /// REQUIRES: layout() and idle() were called for this change.
  void try_skeleton(int stage) {
    const double seconds = evaluator_.finish(
        layout_, max_runners_up_ > 0 ? kFarBehind * base_.seconds : best_seconds_);
    keep(seconds, stage);
  }
  /// REQUIRES: layout() was called for this change.
  void try_balanced(int stage) {
    if (!evaluator_.memory().fits(layout_)) return;
    const double seconds = evaluator_.seconds(layout_);
    idle();
    keep(seconds, stage);
  }
  bool over() { return evaluator_.over(); }
  bool take(Solution& found) {
    if (!better_) return false;
    found.why += (found.why.empty() ? "" : "; ") + best_.story(evaluator_.perf().model().cp);
    found.seconds = best_seconds_;
    found.layout = std::move(best_.layout);
    found.idle = std::move(best_.idle);
    return true;
  }

  std::vector<Solution>& runners_up() { return runners_up_; }

 private:
  void keep(double seconds, int stage) {
    if (!(seconds < best_seconds_ * kWorthwhile)) {
      if (seconds < kFarBehind * base_.seconds) remember(seconds);
      return;
    }
    best_seconds_ = seconds;
    std::swap(best_.layout, layout_);
    std::swap(best_.idle, idle_);
    best_.kind = Candidate::Kind::moved;
    best_.stage = stage;
    better_ = true;
  }
  void remember(double seconds) {
    const auto place = std::find_if(runners_up_.begin(), runners_up_.end(),
                                    [&](const Solution& one) { return seconds < one.seconds; });
    if (static_cast<std::size_t>(place - runners_up_.begin()) >= max_runners_up_) return;
    runners_up_.insert(place, {layout_, idle_, seconds, base_.why});
    if (runners_up_.size() > max_runners_up_) runners_up_.pop_back();
  }
  const Solution& base_;
  Evaluator& evaluator_;
  double best_seconds_;
  std::size_t max_runners_up_;
  std::vector<Solution> runners_up_;
  plan::Layout layout_;
  Islands idle_;
  Candidate best_;
  bool better_ = false;
};

plan::StageLayout& at(plan::Layout& layout, int i) {
  return layout.stages[static_cast<std::size_t>(i)];
}
const plan::StageLayout& at(const plan::Layout& layout, int i) {
  return layout.stages[static_cast<std::size_t>(i)];
}

/// Makes all changes of one plan. Each builds a changed skeleton and passes it to the search.
class Changes {
 public:
  Changes(const Solution& found, const Degrees& degrees, Search& search)
      : found_(found), degrees_(degrees), search_(search) {}

  void try_all() {
    const int pp = found_.layout.pp();
    for (int i = 0; i < pp && !search_.over(); ++i) {
      for (int tp : degrees_.tp)
        if (tp != at(found_.layout, i).tp || !found_.idle.empty()) regroup(i, tp);
      drop(i);
      drop_node(i);
      split(i);
      for (int j = 0; j < pp; ++j) {
        if (j == i || (pp > kManyStages && (j < i - 1 || j > i + 1)))
          continue;  // the number of pairs grows with the square of the stages
        move_groups(i, j);
        move_layer(i, j);
        if (j < i) continue;
        exchange(i, j);
        for (int tp : degrees_.tp) merge(i, j, tp);
      }
    }
  }

 private:
  int take(plan::StageLayout& stage, Islands& from, int tp) const {
    return take_groups(stage, from, tp, degrees_.max_dp - stage.dp(), degrees_.dp_step);
  }

  /// Rebuilds stage `i` from its own and all idle GPUs with TP degree `tp`.
  void regroup(int i, int tp) {
    plan::Layout& layout = search_.layout();
    Islands& idle = search_.idle();
    plan::StageLayout stage{0, tp, {}};
    if (at(layout, i).tp == tp) stage.groups = at(layout, i).groups;
    else add_stage(idle, at(layout, i));
    if (take(stage, idle, tp) == 0) return;
    at(layout, i) = std::move(stage);
    search_.try_skeleton(i);
  }

  void drop(int i) {
    if (found_.layout.pp() == 1) return;
    plan::Layout& layout = search_.layout();
    Islands& idle = search_.idle();
    add_stage(idle, at(layout, i));
    layout.stages.erase(layout.stages.begin() + i);
    search_.try_skeleton(0);
  }

  /// Drops the groups of stage `i` on one node and of one type: a slow link or type may delay the
  /// stage.
  void drop_node(int i) {
    for_each_island(at(found_.layout, i), [&](const auto& island) {
      plan::Layout& layout = search_.layout();
      Islands& idle = search_.idle();
      std::erase_if(at(layout, i).groups, [&](const plan::GroupLayout& group) {
        if (!plan::together(group, island) || group.type != island.type) return false;
        add_to(idle, group.node, group.type, group.gpus, group.part);
        return true;
      });
      if (at(layout, i).groups.empty()) return;
      search_.try_skeleton(i);
    });
  }

  /// Moves groups of stage `from` on one node, enough for one group of `to`, into stage `to`.
  void move_groups(int from, int to) {
    const int wanted = std::max(1, at(found_.layout, to).tp / at(found_.layout, from).tp);
    for_each_island(at(found_.layout, from), [&](const auto& island) {
      plan::Layout& layout = search_.layout();
      Islands& idle = search_.idle();
      auto& groups = at(layout, from).groups;
      int moved = 0;
      for (std::size_t j = groups.size(); j-- > 0 && moved < wanted;)
        if (plan::together(groups[j], island) && groups[j].type == island.type) {
          add_to(idle, island.node, island.type, groups[j].gpus, island.part);
          groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(j));
          ++moved;
        }
      if (groups.empty()) return;  // merge() tries moving all groups
      plan::StageLayout& receiver = at(layout, to);
      if (take(receiver, idle, receiver.tp) == 0) return;
      std::sort(receiver.groups.begin(), receiver.groups.end(), [](const auto& a, const auto& b) {
        return std::tuple(a.type, a.node, a.part, a.gpus) <
               std::tuple(b.type, b.node, b.part, b.gpus);
      });
      search_.try_skeleton(to);
    });
  }

  void merge(int i, int j, int tp) {
    Islands& idle = search_.idle();
    add_stage(idle, at(found_.layout, i));
    add_stage(idle, at(found_.layout, j));
    plan::StageLayout stage{0, tp, {}};
    if (take(stage, idle, tp) == 0) return;
    plan::Layout& layout = search_.layout();
    at(layout, i) = std::move(stage);
    layout.stages.erase(layout.stages.begin() + j);
    search_.try_skeleton(i);
  }

  /// Splits stage `i` in two at each border of nodes or types and in the middle. Splits a small
  /// stage at every position, also with another TP degree behind the cut.
  void split(int i) {
    const plan::StageLayout& whole = at(found_.layout, i);
    const std::size_t dp = whole.groups.size();
    const bool small = dp <= kSmallStage && found_.layout.pp() <= kFewStages;
    const std::size_t min_apart = dp / kManyNodes / 2;
    std::size_t last = 0;
    for (std::size_t cut = 1; cut < dp; ++cut) {
      const auto& before = whole.groups[cut - 1];
      const auto& behind = whole.groups[cut];
      const bool same_type = before.type == behind.type,
                 same_node = plan::together(before, behind) && same_type;
      if (!small && cut != dp / 2 && (same_node || (same_type && cut < last + min_apart))) continue;
      last = cut;
      for (int tp : degrees_.tp) {
        if (tp != whole.tp && !small) continue;
        plan::Layout& layout = search_.layout();
        Islands& idle = search_.idle();
        auto& kept = at(layout, i).groups;
        plan::StageLayout rest{0, tp, {}};
        rest.groups.assign(kept.begin() + static_cast<std::ptrdiff_t>(cut), kept.end());
        kept.resize(cut);
        if (tp != whole.tp) {
          Islands loose;
          add_stage(loose, rest);
          rest.groups.clear();
          if (take(rest, loose, tp) == 0) continue;
          add_all(idle, loose);
        }
        layout.stages.insert(layout.stages.begin() + i + 1, std::move(rest));
        search_.try_skeleton(i);
      }
    }
  }

  void exchange(int i, int j) {
    plan::Layout& layout = search_.layout();
    std::swap(at(layout, i), at(layout, j));
    search_.idle();
    search_.try_skeleton(i);
  }

  void move_layer(int from, int to) {
    if (at(found_.layout, from).layers < 2 || found_.layout.is_scheduled()) return;
    plan::Layout& layout = search_.layout();
    --at(layout, from).layers;
    ++at(layout, to).layers;
    search_.try_balanced(to);
  }

  struct NodeGroups {
    int node, part, type, groups;
  };

  /// Calls `body` for each node and type of the stage. In a stage with more than kManyNodes nodes,
  /// only for the first and last node of each run with equal numbers of groups of a type.
  template <typename Body>
  static void for_each_island(const plan::StageLayout& stage, const Body& body) {
    std::vector<NodeGroups> islands;
    for (const plan::GroupLayout& group : stage.groups) {
      if (islands.empty() || !plan::together(group, islands.back()) ||
          group.type != islands.back().type)
        islands.push_back({group.node, group.part, group.type, 0});
      ++islands.back().groups;
    }
    const auto alike = [](const NodeGroups& a, const NodeGroups& b) {
      return a.type == b.type && a.groups == b.groups;
    };
    for (std::size_t i = 0; i < islands.size(); ++i) {
      const bool between = islands.size() > kManyNodes && i > 0 && i + 1 < islands.size() &&
                           alike(islands[i - 1], islands[i]) && alike(islands[i], islands[i + 1]);
      if (!between) body(islands[i]);
    }
  }

  const Solution& found_;
  const Degrees& degrees_;
  Search& search_;
};

std::uint64_t hash_of(const Solution& one) noexcept {
  std::uint64_t hash = 0;
  const auto mix = [&](std::uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  };
  for (const plan::StageLayout& stage : one.layout.stages) {
    for (const int units : stage.chunks) mix(static_cast<std::uint64_t>(units) + 1);
    mix(static_cast<std::uint64_t>(stage.layers) << 32 | static_cast<std::uint64_t>(stage.tp));
    for (const plan::GroupLayout& group : stage.groups) {
      mix(static_cast<std::uint64_t>(group.node) << 32 |
          static_cast<std::uint64_t>(group.local_batch));
      mix(group.gpus);
      mix(static_cast<std::uint64_t>(group.part));
    }
  }
  for (const Island& island : one.idle) {
    mix(static_cast<std::uint64_t>(island.node));
    mix(island.gpus);
  }
  return hash;
}

/// Replaces `found` with the round's result if it is better. Returns whether it was.
bool take_round(Solution& found, const KnownRounds::Round& round) {
  if (!round.better) return false;
  found.layout = round.found.layout;
  found.idle = round.found.idle;
  found.seconds = round.found.seconds;
  found.why += (found.why.empty() ? "" : "; ") + round.found.why;
  return true;
}

/// Makes one round that does not refine worse changes further. Returns whether it found a better
/// plan.
bool refine_once(Solution& found, Evaluator& evaluator, const Degrees& degrees,
                 KnownRounds& known) {
  if (const KnownRounds::Round* round = known.find(found)) {
    evaluator.count(round->evaluated);
    return take_round(found, *round);
  }
  const long before = evaluator.evaluated();
  Search search(found, evaluator, 0);
  Changes(found, degrees, search).try_all();
  KnownRounds::Round round;
  round.better = search.take(round.found);
  round.evaluated = evaluator.evaluated() - before;
  return take_round(found, known.add(found, std::move(round)));
}

}  // namespace

const KnownRounds::Round* KnownRounds::find(const Solution& from) const {
  const std::uint64_t hash = hash_of(from);
  const Lock lock(mutex_);
  const auto [begin, end] = known_.equal_range(hash);
  for (auto each = begin; each != end; ++each)
    if (each->second.layout == from.layout && each->second.idle == from.idle)
      return &each->second.round;
  return nullptr;
}

const KnownRounds::Round& KnownRounds::add(const Solution& from, Round round) {
  const std::uint64_t hash = hash_of(from);
  const Lock lock(mutex_);
  return known_.emplace(hash, Known{from.layout, from.idle, std::move(round)})->second.round;
}

void refine(Solution& found, Evaluator& evaluator, const Degrees& degrees, KnownRounds& known,
            int rounds, bool deep, Executor* executor) {
  for (int round = 0; round < rounds; ++round) {
    if (!deep) {
      if (!refine_once(found, evaluator, degrees, known)) return;
      continue;
    }
    Search search(found, evaluator, kRunnersUp);
    Changes(found, degrees, search).try_all();
    if (search.take(found)) continue;
    bool better = false;
    refine_each(
        search.runners_up(), evaluator, degrees, known, [](const Solution&) { return kDeepRounds; },
        executor);
    for (Solution& other : search.runners_up()) {
      if (!(other.seconds < found.seconds * kWorthwhile)) continue;
      found = std::move(other);
      better = true;
    }
    if (!better) return;
  }
}

void refine_each(std::span<Solution> all, Evaluator& evaluator, const Degrees& degrees,
                 KnownRounds& known, const std::function<int(const Solution&)>& rounds,
                 Executor* executor) {
  if (executor == nullptr || all.size() <= kAtOnce) {
    for (Solution& one : all) refine(one, evaluator, degrees, known, rounds(one));
    return;
  }
  std::vector<long> evaluated((all.size() + kAtOnce - 1) / kAtOnce);
  executor->run(evaluated.size(), [&](std::size_t piece) {
    Evaluator its_own = evaluator.another();
    const std::size_t begin = piece * kAtOnce;
    for (Solution& one : all.subspan(begin, std::min(kAtOnce, all.size() - begin)))
      refine(one, its_own, degrees, known, rounds(one));
    evaluated[piece] = its_own.evaluated();
  });
  for (const long count : evaluated) evaluator.count(count);
}

}  // namespace swell::planner
