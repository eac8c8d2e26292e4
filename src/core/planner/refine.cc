// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/refine.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace swell::planner {

namespace {

constexpr double kWorthwhile = 1 - 1e-9;  // below this share of the old time, a change counts

/// Tries changes of one plan and keeps the best.
class Search {
 public:
  Search(const Found& base, Evaluator& evaluator) : base_(base), evaluator_(evaluator), best_seconds_(base.seconds) {}

  void try_skeleton(plan::Layout&& layout, Clumps&& idle, int stage) {
    const double seconds = evaluator_.finish(layout);
    keep(std::move(layout), std::move(idle), seconds, stage);
  }
  void try_balanced(plan::Layout&& layout, int stage) {
    if (!evaluator_.memory().fits(layout)) return;
    const double seconds = evaluator_.seconds(layout);
    keep(std::move(layout), Clumps(base_.idle), seconds, stage);
  }
  bool take(Found& found) {
    if (!better_) return false;
    found.seconds = best_seconds_;
    found.layout = std::move(best_.layout);
    found.idle = std::move(best_.idle);
    found.why += (found.why.empty() ? "" : "; ") + story_;
    return true;
  }

 private:
  void keep(plan::Layout&& layout, Clumps&& idle, double seconds, int stage) {
    if (!(seconds < best_seconds_ * kWorthwhile)) return;
    best_seconds_ = seconds;
    best_ = {std::move(layout), std::move(idle), Candidate::Kind::moved, stage};
    story_ = best_.story();
    better_ = true;
  }
  const Found& base_;
  Evaluator& evaluator_;
  double best_seconds_;
  Candidate best_;
  std::string story_;
  bool better_ = false;
};

plan::StageLayout& at(plan::Layout& layout, int i) { return layout.stages[static_cast<std::size_t>(i)]; }
const plan::StageLayout& at(const plan::Layout& layout, int i) { return layout.stages[static_cast<std::size_t>(i)]; }

/// Stage `i` rebuilt from its own and all idle GPUs with another degree.
void regroup(const Found& found, int i, int tp, Search& search) {
  plan::Layout layout = found.layout;
  Clumps idle = found.idle;
  plan::StageLayout stage{0, tp, {}};
  if (at(layout, i).tp == tp) stage.groups = at(layout, i).groups;
  else add_stage(idle, at(layout, i));
  if (take_groups(stage, idle, tp) == 0) return;
  at(layout, i) = std::move(stage);
  search.try_skeleton(std::move(layout), std::move(idle), i);
}

/// Groups of `from` on one clump, enough for one group of `to`, change sides.
void move_groups(const Found& found, int from, int to, Search& search) {
  const plan::StageLayout& giver = at(found.layout, from);
  const int wanted = std::max(1, at(found.layout, to).tp / giver.tp);
  int seen_node = -1, seen_type = -1;
  for (const plan::GroupLayout& first : giver.groups) {
    if (first.node == seen_node && first.type == seen_type) continue;
    seen_node = first.node;
    seen_type = first.type;
    plan::Layout layout = found.layout;
    Clumps idle = found.idle;
    auto& groups = at(layout, from).groups;
    int moved = 0;
    for (std::size_t j = groups.size(); j-- > 0 && moved < wanted;)
      if (groups[j].node == first.node && groups[j].type == first.type) {
        add_to(idle, first.node, first.type, groups[j].gpus);
        groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(j));
        ++moved;
      }
    if (groups.empty()) continue;  // that would be a merge
    plan::StageLayout& receiver = at(layout, to);
    if (take_groups(receiver, idle, receiver.tp) == 0) continue;
    std::sort(receiver.groups.begin(), receiver.groups.end(), [](const auto& a, const auto& b) {
      return std::tuple(a.type, a.node, a.gpus) < std::tuple(b.type, b.node, b.gpus);
    });
    search.try_skeleton(std::move(layout), std::move(idle), to);
  }
}

void merge(const Found& found, int i, int j, int tp, Search& search) {
  plan::Layout layout = found.layout;
  Clumps idle = found.idle;
  add_stage(idle, at(layout, i));
  add_stage(idle, at(layout, j));
  plan::StageLayout stage{0, tp, {}};
  if (take_groups(stage, idle, tp) == 0) return;
  at(layout, i) = std::move(stage);
  layout.stages.erase(layout.stages.begin() + j);
  search.try_skeleton(std::move(layout), std::move(idle), i);
}

/// Stage `i` in two: the first `cut` groups, and the others, before or behind.
void split(const Found& found, int i, std::size_t cut, Search& search) {
  plan::Layout layout = found.layout;
  plan::StageLayout rest{0, at(layout, i).tp, {}};
  auto& groups = at(layout, i).groups;
  rest.groups.assign(groups.begin() + static_cast<std::ptrdiff_t>(cut), groups.end());
  groups.resize(cut);
  layout.stages.insert(layout.stages.begin() + i + 1, std::move(rest));
  search.try_skeleton(std::move(layout), Clumps(found.idle), i);
}

void try_splits(const Found& found, int i, Search& search) {
  const auto& groups = at(found.layout, i).groups;
  for (std::size_t cut = 1; cut < groups.size(); ++cut) {
    const bool border = groups[cut].node != groups[cut - 1].node || groups[cut].type != groups[cut - 1].type;
    if (border || cut == groups.size() / 2) split(found, i, cut, search);
  }
}

void try_all(const Found& found, const std::vector<int>& tp_degrees, Search& search) {
  const int pp = found.layout.pp();
  for (int i = 0; i < pp; ++i) {
    for (int tp : tp_degrees)
      if (tp != at(found.layout, i).tp || !found.idle.empty()) regroup(found, i, tp, search);
    try_splits(found, i, search);
    for (int j = 0; j < pp; ++j)
      if (j != i) move_groups(found, i, j, search);
    for (int j = i + 1; j < pp; ++j)
      for (int tp : tp_degrees) merge(found, i, j, tp, search);
    for (int j = i + 1; j < pp; ++j) {
      plan::Layout swapped = found.layout;
      std::swap(at(swapped, i), at(swapped, j));
      search.try_skeleton(std::move(swapped), Clumps(found.idle), i);
    }
    for (int j = 0; j < pp; ++j) {
      if (j == i || at(found.layout, i).layers < 2) continue;
      plan::Layout shifted = found.layout;
      --at(shifted, i).layers;
      ++at(shifted, j).layers;
      search.try_balanced(std::move(shifted), j);
    }
  }
}

}  // namespace

void refine(Found& found, Evaluator& evaluator, const std::vector<int>& tp_degrees, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    Search search(found, evaluator);
    try_all(found, tp_degrees, search);
    if (!search.take(found)) return;
  }
}

}  // namespace swell::planner
