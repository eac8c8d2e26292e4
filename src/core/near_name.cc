// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/near_name.h"

#include <algorithm>
#include <utility>

namespace swell {

std::size_t letters_apart(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] != b[j - 1] ? 1 : 0);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, changed}));
    }
  }
  return row.back();
}

std::optional<std::string> near_name(std::string_view word, const std::vector<std::string>& names) {
  constexpr std::size_t max_apart = 2;
  std::optional<std::string> nearest;
  std::size_t least = max_apart + 1;
  for (const std::string& name : names) {
    const std::size_t apart = letters_apart(word, name);
    if (apart >= least || apart >= std::max(word.size(), name.size())) continue;
    least = apart;
    nearest = name;
  }
  return nearest;
}

}  // namespace swell
