// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/slurm_text/lists.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/number.h"

namespace swell::slurm_text {

std::vector<std::string_view> split_list(std::string_view list) {
  std::vector<std::string_view> entries;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i == list.size() || (list[i] == ',' && depth == 0)) {
      if (i > begin) entries.push_back(list.substr(begin, i - begin));
      begin = i + 1;
    } else if (list[i] == '(' || list[i] == '[') {
      ++depth;
    } else if ((list[i] == ')' || list[i] == ']') && depth > 0) {
      --depth;
    }
  }
  return entries;
}

int count_indices(std::string_view list) {
  constexpr std::int64_t largest = 1'000'000;
  std::int64_t count = 0;
  for (const std::string_view range : split_list(list)) {
    const std::size_t dash = range.find('-');
    const auto first = read_whole<std::int64_t>(range.substr(0, dash));
    const auto last = dash == range.npos ? first : read_whole<std::int64_t>(range.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first) continue;
    count = std::min(count + std::min(*last - *first, largest) + 1, largest);
  }
  return static_cast<int>(count);
}

}  // namespace swell::slurm_text
