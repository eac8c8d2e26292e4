// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace swell {

/// Reads all of `text` as a number; returns nothing if it is not one.
template <typename Number>
std::optional<Number> read_number(std::string_view text) {
  Number value{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Reads all of `text` as a number of at least 0; returns nothing if it is not one.
template <typename Number>
std::optional<Number> read_whole(std::string_view text) {
  const auto value = read_number<Number>(text);
  return value && *value >= 0 ? value : std::nullopt;
}

}  // namespace swell
