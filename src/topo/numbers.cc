// SPDX-License-Identifier: GPL-2.0-or-later
#include "topo/numbers.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>

namespace swell::topo {

std::string ranges(std::vector<int> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (std::size_t first = 0; first < numbers.size();) {
    std::size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] <= numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[first]);
    if (numbers[last] > numbers[first]) text += fmt::format("-{}", numbers[last]);
    first = last + 1;
  }
  return text;
}

void read_gid(std::string_view text, std::uint64_t& subnet_prefix, std::uint64_t& guid) {
  subnet_prefix = guid = 0;
  std::uint64_t halves[2] = {0, 0};
  int digits = 0;
  for (const char c : text) {
    if (c == ':') continue;
    const int value = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (value < 0) break;
    if (digits >= 32) return;
    halves[digits / 16] = halves[digits / 16] << 4 | static_cast<std::uint64_t>(value);
    ++digits;
  }
  if (digits != 32) return;
  subnet_prefix = halves[0];
  guid = halves[1];
}

double pcie_bandwidth(const std::string& speed, const std::string& width) {
  const double transfers = std::strtod(speed.c_str(), nullptr),
               lanes = std::strtod(width.c_str(), nullptr);
  if (!(transfers > 0 && transfers <= 256 && lanes > 0 && lanes <= 32)) return 0;
  return transfers * 1e9 / 8 * lanes * (transfers < 8 ? 8.0 / 10 : 128.0 / 130);
}

}  // namespace swell::topo
