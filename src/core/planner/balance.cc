// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/balance.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

namespace swell::planner {

bool min_max_split(int items, std::span<const double> cost, std::span<const int> cap,
                   std::vector<int>& share) {
  const std::size_t bins = cost.size();
  if (bins == 0 || items < static_cast<int>(bins)) return false;
  const int each = items / static_cast<int>(bins), left = items % static_cast<int>(bins);
  if (std::ranges::count(cost, cost[0]) == static_cast<std::ptrdiff_t>(bins) &&
      std::ranges::min(cap) > each) {  // shortcut: gives the same result as the code below
    share.assign(bins, each);
    std::for_each_n(share.begin(), left, [](int& of) { ++of; });
    return true;
  }
  double rate = 0;
  for (std::size_t i = 0; i < bins; ++i) {
    if (cap[i] < 1) return false;
    rate += 1 / cost[i];
  }
  // No split has a smaller maximum than equal loads, so items below that load are safe to give.
  const double even = items / rate;
  share.resize(bins);
  int given = 0;
  for (std::size_t i = 0; i < bins; ++i) {
    share[i] =
        static_cast<int>(std::clamp(std::floor(even / cost[i]), 1.0, static_cast<double>(cap[i])));
    given += share[i];
  }
  if (given > items) {  // bins raised to their minimum of one item took more than their share
    std::fill(share.begin(), share.end(), 1);
    given = static_cast<int>(bins);
  }
  using Next = std::pair<double, std::size_t>;  // load after one more item, bin
  static thread_local std::vector<Next> heap;
  heap.clear();
  for (std::size_t i = 0; i < bins; ++i)
    if (share[i] < cap[i]) heap.emplace_back((share[i] + 1) * cost[i], i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  for (; given < items; ++given) {
    if (heap.empty()) return false;
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    Next& next = heap.back();
    const std::size_t bin = next.second;
    if (++share[bin] < cap[bin]) {
      next.first = (share[bin] + 1) * cost[bin];
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    } else {
      heap.pop_back();
    }
  }
  return true;
}

bool min_max_split(int items, std::span<const double> cost, std::span<const double> base,
                   std::span<const int> cap, std::vector<int>& share) {
  const std::size_t bins = cost.size();
  if (bins == 0 || items < static_cast<int>(bins)) return false;
  using Next = std::pair<double, std::size_t>;
  std::vector<Next> heap;
  for (std::size_t i = 0; i < bins; ++i) {
    if (cap[i] < 1) return false;
    if (cap[i] > 1) heap.emplace_back(2 * cost[i] + base[i], i);
  }
  share.assign(bins, 1);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  for (int given = static_cast<int>(bins); given < items; ++given) {
    if (heap.empty()) return false;
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    Next& next = heap.back();
    const std::size_t bin = next.second;
    if (++share[bin] == cap[bin]) {
      heap.pop_back();
      continue;
    }
    next.first += cost[bin];
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  }
  return true;
}

void lighten(std::span<const double> cost, std::span<const int> cap, std::vector<int>& share) {
  double max = 0, min_cost = cost[0], max_cost = cost[0];
  for (std::size_t i = 0; i < share.size(); ++i) {
    max = std::max(max, share[i] * cost[i]);
    min_cost = std::min(min_cost, cost[i]);
    max_cost = std::max(max_cost, cost[i]);
  }
  if (max_cost <= min_cost * (1 + 1e-12)) return;  // costs are equal: no move lowers the sum
  static thread_local std::vector<std::size_t> order;
  order.resize(share.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(cost[a], a) < std::pair(cost[b], b);
  });
  std::size_t dear = order.size() - 1;
  for (std::size_t cheap = 0; cheap < dear; ++cheap) {
    const std::size_t to = order[cheap];
    const int limit = static_cast<int>(
        std::min(std::floor(max / cost[to] * (1 + 1e-12)), static_cast<double>(cap[to])));
    while (share[to] < limit && cheap < dear) {
      const std::size_t from = order[dear];
      if (share[from] <= 1) {
        --dear;
        continue;
      }
      if (cost[from] <= cost[to]) return;
      const int moved = std::min(limit - share[to], share[from] - 1);
      share[to] += moved;
      share[from] -= moved;
    }
  }
}

}  // namespace swell::planner
