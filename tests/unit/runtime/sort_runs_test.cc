// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/plan/sort_runs.h"

#include <criterion/criterion.h>
#include <random>

using namespace swell::runtime;

Test(sort_runs, sorts_any_number_of_runs_and_keeps_equal_ones_in_order) {
  using Item = std::pair<int, int>;  // a key, and where it was
  const auto less = [](const Item& a, const Item& b) { return a.first < b.first; };
  std::mt19937_64 random(5);
  std::vector<Item> spare;
  for (int round = 0; round < 500; ++round) {
    std::vector<Item> list;
    for (auto runs = random() % 9; runs > 0; --runs) {
      int key = static_cast<int>(random() % 10);
      for (auto left = random() % 12; left > 0; --left, key += static_cast<int>(random() % 3))
        list.emplace_back(key, static_cast<int>(list.size()));
    }
    std::vector<Item> wanted = list;
    std::stable_sort(wanted.begin(), wanted.end(), less);
    sort_runs(list, spare, less);
    cr_assert(list == wanted, "round %d", round);
  }
}
