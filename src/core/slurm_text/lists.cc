// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/slurm_text/lists.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/number.h"
#include "core/saturating.h"

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

namespace {

struct Range {
  std::int64_t first = 0, last = -1;
};

/// Reads "4-7" or "4"; returns an empty range for falling ranges and other text.
Range read_range(std::string_view text) {
  const std::size_t dash = text.find('-');
  const auto first = read_whole<std::int64_t>(text.substr(0, dash));
  const auto last = dash == text.npos ? first : read_whole<std::int64_t>(text.substr(dash + 1));
  if (!first || !last || *first < 0 || *last < *first) return {};
  return {*first, *last};
}

}  // namespace

int count_indices(std::string_view list) {
  constexpr std::int64_t largest = 1'000'000;
  std::int64_t count = 0;
  for (const std::string_view text : split_list(list)) {
    const Range range = read_range(text);
    count = std::min(count + std::min(range.last - range.first, largest) + 1, largest);
  }
  return static_cast<int>(count);
}

std::vector<int> expand_indices(std::string_view list, std::size_t max) {
  std::vector<int> indices;
  for (const std::string_view text : split_list(list)) {
    const Range range = read_range(text);
    for (std::int64_t each = range.first; each <= range.last && indices.size() < max; ++each)
      indices.push_back(saturated_int(each));
  }
  return indices;
}

std::string list_of_indices(const std::vector<int>& indices) {
  std::string list;
  for (std::size_t i = 0; i < indices.size();) {
    std::size_t last = i;
    while (last + 1 < indices.size() && indices[last + 1] == indices[last] + 1) ++last;
    if (!list.empty()) list += ',';
    list += std::to_string(indices[i]);
    if (last > i) list += '-' + std::to_string(indices[last]);
    i = last + 1;
  }
  return list;
}

}  // namespace swell::slurm_text
