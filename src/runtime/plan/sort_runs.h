// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace swell::runtime {

/// Sorts a list that consists of a few rising runs, and keeps equal items in order. Like
/// std::stable_sort(), but takes time proportional to the length times the logarithm of the number
/// of runs. `spare` is memory that several calls share.
template <typename T, typename Less>
void sort_runs(std::vector<T>& list, std::vector<T>& spare, Less&& less) {
  std::vector<std::ptrdiff_t> ends;  // ends of the runs
  for (std::size_t i = 1; i < list.size(); ++i)
    if (less(list[i], list[i - 1])) ends.push_back(static_cast<std::ptrdiff_t>(i));
  ends.push_back(static_cast<std::ptrdiff_t>(list.size()));
  while (ends.size() > 1) {
    spare.resize(list.size());
    std::size_t kept = 0;
    for (std::ptrdiff_t i = 0, begin = 0; i < std::ssize(ends); i += 2) {
      const std::ptrdiff_t middle = ends[static_cast<std::size_t>(i)];
      const std::ptrdiff_t end =
          i + 1 < std::ssize(ends) ? ends[static_cast<std::size_t>(i + 1)] : middle;
      std::merge(list.begin() + begin, list.begin() + middle, list.begin() + middle,
                 list.begin() + end, spare.begin() + begin, less);
      ends[kept++] = begin = end;
    }
    ends.resize(kept);
    list.swap(spare);
  }
}

}  // namespace swell::runtime
