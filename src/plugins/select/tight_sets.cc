// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/select/tight_sets.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <tuple>

namespace swell::select {

namespace {

/// Up to this number of leaves, all their sets are considered.
constexpr std::size_t kMaxCombined = 6;

const LeafCount& at(const std::vector<LeafCount>& counts, int leaf) {
  return counts[static_cast<std::size_t>(leaf)];
}

/// Returns the fewest leaves of a group that have `wanted` idle nodes: those with the most idle
/// nodes, and last the smallest leaf that has the nodes still missing. Empty if the group has too
/// few.
std::vector<int> cover_in(const std::vector<LeafCount>& counts, std::vector<int> group,
                          int wanted) {
  std::stable_sort(group.begin(), group.end(),
                   [&](int a, int b) { return at(counts, a).idle > at(counts, b).idle; });
  std::vector<int> cover;
  for (auto next = group.begin(); next != group.end(); ++next) {
    if (at(counts, *next).idle >= wanted) {
      const auto too_small =
          std::find_if(next, group.end(), [&](int leaf) { return at(counts, leaf).idle < wanted; });
      cover.push_back(*(too_small - 1));
      return cover;
    }
    cover.push_back(*next);
    wanted -= at(counts, *next).idle;
  }
  return {};
}

int idle_in(const std::vector<LeafCount>& counts, const std::vector<int>& leaves) {
  int sum = 0;
  for (int leaf : leaves) sum += at(counts, leaf).idle;
  return sum;
}

}  // namespace

std::vector<int> idle_cover(const std::vector<LeafCount>& counts, const LeafGroups& groups,
                            int wanted) {
  std::vector<int> best;
  for (const auto& level : groups) {
    auto rank = [&](const std::vector<int>& cover) {
      return std::tuple(cover.size(), idle_in(counts, cover));
    };
    for (const std::vector<int>& group : level) {
      std::vector<int> cover = cover_in(counts, group, wanted);
      if (!cover.empty() && (best.empty() || rank(cover) < rank(best))) best = std::move(cover);
    }
    if (!best.empty()) break;
  }
  return best;
}

std::vector<std::vector<int>> fewer_leaves(const std::vector<LeafCount>& counts, int wanted,
                                           int max_idle, std::size_t max) {
  std::vector<int> order;
  int taken = 0;
  for (int leaf = 0; leaf < static_cast<int>(counts.size()); ++leaf) {
    if (at(counts, leaf).usable > 0) order.push_back(leaf);
    if (at(counts, leaf).chosen > 0) ++taken;
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const LeafCount &left = at(counts, a), &right = at(counts, b);
    return std::tuple(right.chosen, right.idle, right.usable) <
           std::tuple(left.chosen, left.idle, left.usable);
  });
  if (order.size() > kMaxCombined) order.resize(kMaxCombined);

  struct Candidate {
    bool is_sure;
    int chosen, idle;
    std::vector<int> leaves;
  };
  std::vector<Candidate> found;
  for (unsigned members = 1; members < 1u << order.size(); ++members) {
    if (std::popcount(members) >= taken) continue;
    Candidate set{false, 0, 0, {}};
    int partly = 0, shared = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if ((members >> i & 1u) == 0) continue;
      const LeafCount& leaf = at(counts, order[i]);
      set.leaves.push_back(order[i]);
      set.chosen += leaf.chosen;
      set.idle += leaf.idle;
      partly += leaf.partly;
      shared += leaf.usable - leaf.idle;
    }
    const int idle = std::min(set.idle, max_idle);
    set.is_sure = partly + idle >= wanted;
    if (shared + idle >= wanted) found.push_back(std::move(set));
  }
  std::stable_sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
    return std::tuple(a.leaves.size(), !a.is_sure, -a.chosen, a.idle) <
           std::tuple(b.leaves.size(), !b.is_sure, -b.chosen, b.idle);
  });
  const auto sure =
      std::find_if(found.begin(), found.end(), [](const Candidate& set) { return set.is_sure; });
  if (sure != found.end()) found.erase(sure + 1, found.end());
  if (found.size() > max) {
    if (sure != found.end()) std::swap(found[max - 1], found.back());
    found.resize(max);
  }
  std::vector<std::vector<int>> sets;
  for (Candidate& set : found) {
    std::stable_sort(set.leaves.begin(), set.leaves.end(),
                     [&](int a, int b) { return at(counts, a).idle < at(counts, b).idle; });
    sets.push_back(std::move(set.leaves));
  }
  return sets;
}

}  // namespace swell::select
