// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fmt/format.h>
#include <string>
#include <string_view>
#include <type_traits>

namespace swell {

/// Returns a number with what it counts: "1 GPU", "2 GPUs", "1 micro-batch", "2 micro-batches".
/// `one`: the singular.
template <typename Number>
requires std::is_arithmetic_v<Number> std::string count_of(Number number, std::string_view one) {
  const bool hisses = one.ends_with('s') || one.ends_with("ch");
  return fmt::format("{} {}{}", number, one, number == Number{1} ? "" : hisses ? "es" : "s");
}

}  // namespace swell
