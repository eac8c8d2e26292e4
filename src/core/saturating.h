// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <limits>

/// Arithmetic on counts that users choose: a result out of range becomes the largest value.
/// REQUIRES: both operands are at least 0.
namespace swell {

constexpr std::int64_t saturating_product(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? std::numeric_limits<std::int64_t>::max() : result;
}

constexpr std::int64_t saturating_sum(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t result = 0;
  return __builtin_add_overflow(a, b, &result) ? std::numeric_limits<std::int64_t>::max() : result;
}

/// Returns `value` as an int; the largest int if it is larger.
constexpr int saturated_int(std::int64_t value) noexcept {
  return value > std::numeric_limits<int>::max() ? std::numeric_limits<int>::max()
                                                 : static_cast<int>(value);
}

}  // namespace swell
