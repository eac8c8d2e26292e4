// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/select/tight_sets.h"

#include <algorithm>
#include <cstddef>
#include <tuple>

namespace swell::select {

namespace {

const LeafCount& at(const std::vector<LeafCount>& counts, int leaf) { return counts[static_cast<std::size_t>(leaf)]; }

/// The fewest leaves of a group that have `wanted` idle nodes: the fullest ones, and in the end the smallest
/// that has what is still missing. Empty where the group has too few.
std::vector<int> cover_in(const std::vector<LeafCount>& counts, std::vector<int> group, int wanted) {
  std::stable_sort(group.begin(), group.end(), [&](int a, int b) { return at(counts, a).idle > at(counts, b).idle; });
  std::vector<int> cover;
  for (auto next = group.begin(); next != group.end(); ++next) {
    if (at(counts, *next).idle >= wanted) {
      const auto too_small = std::find_if(next, group.end(), [&](int leaf) { return at(counts, leaf).idle < wanted; });
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

std::vector<int> idle_cover(const std::vector<LeafCount>& counts, const LeafGroups& groups, int wanted) {
  std::vector<int> best;
  for (const auto& level : groups) {
    auto rank = [&](const std::vector<int>& cover) { return std::tuple(cover.size(), idle_in(counts, cover)); };
    for (const std::vector<int>& group : level) {
      std::vector<int> cover = cover_in(counts, group, wanted);
      if (!cover.empty() && (best.empty() || rank(cover) < rank(best))) best = std::move(cover);
    }
    if (!best.empty()) break;
  }
  return best;
}

std::vector<std::vector<int>> fewer_leaves(const std::vector<LeafCount>& counts, int wanted, int most) {
  std::vector<int> order;
  std::size_t taken = 0;
  for (int leaf = 0; leaf < static_cast<int>(counts.size()); ++leaf) {
    if (at(counts, leaf).usable > 0) order.push_back(leaf);
    if (at(counts, leaf).chosen > 0) ++taken;
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const LeafCount &left = at(counts, a), &right = at(counts, b);
    return std::tuple(right.chosen, right.idle, right.usable) < std::tuple(left.chosen, left.idle, left.usable);
  });
  std::vector<std::vector<int>> sets;
  auto is_full = [&] { return static_cast<int>(sets.size()) >= most; };
  for (int leaf : order)
    if (taken > 1 && !is_full() && at(counts, leaf).usable >= wanted) sets.push_back({leaf});
  for (std::size_t size = 2; size < std::min(taken, order.size() + 1) && !is_full(); ++size) {
    const std::vector<int> first(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(size));
    int usable = 0;
    for (int leaf : first) usable += at(counts, leaf).usable;
    if (usable >= wanted) sets.push_back(first);
  }
  return sets;
}

}  // namespace swell::select
