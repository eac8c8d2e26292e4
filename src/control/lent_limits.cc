// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/lent_limits.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>

#include "base/lower.h"
#include "core/number.h"

namespace swell::control {

namespace {

constexpr int kMaxLimit = 1'000'000;

}  // namespace

Result<LentLimits> LentLimits::parse(std::string_view text) {
  LentLimits limits;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view entry = text.substr(0, comma);
    const std::size_t colon = entry.rfind(':');
    const auto gpus =
        colon != std::string_view::npos ? read_whole<int>(entry.substr(colon + 1)) : std::nullopt;
    if (!gpus || colon == 0 || *gpus > kMaxLimit ||
        entry.find_first_of(" \t") != std::string_view::npos)
      return Error(fmt::format(
          "NAME:GPUS[,NAME:GPUS...] with whole numbers from 0 to {}, and * for all other names; \"{}\" is not",
          kMaxLimit, entry));
    if (!limits.by_name_.emplace(lower(entry.substr(0, colon)), *gpus).second)
      return Error(fmt::format("one limit a name; \"{}\" has two", lower(entry.substr(0, colon))));
    if (comma == std::string_view::npos) return limits;
    text.remove_prefix(comma + 1);
  }
}

std::optional<int> LentLimits::of(std::string_view name) const {
  auto found = by_name_.find(lower(name));
  if (found == by_name_.end()) found = by_name_.find("*");
  return found != by_name_.end() ? std::optional(found->second) : std::nullopt;
}

}  // namespace swell::control
