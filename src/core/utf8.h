// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <fmt/format.h>
#include <string>
#include <string_view>

namespace swell {

/// One character of a text, or one byte that is not part of a character.
struct Utf8Unit {
  char32_t point = 0;  ///< the code point, or the byte's value
  std::size_t bytes = 1;
  bool valid = true;  ///< false: the byte is not part of UTF-8
};

/// Reads the unit at `at`. Overlong forms, surrogates and values above U+10FFFF are not UTF-8.
/// REQUIRES: at < text.size().
inline Utf8Unit utf8_unit(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return {first, 1, true};
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  const Utf8Unit wrong{first, 1, false};
  if (first < 0xc2 || first > 0xf4 || at + bytes > text.size()) return wrong;
  char32_t point = first & (0xffu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return wrong;
    point = point << 6 | (byte(at + i) & 0x3fu);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (point < kLeast[bytes] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
    return wrong;
  return {point, bytes, true};
}

/// Returns `text` with each byte that is not UTF-8 written as the four characters \xNN.
inline std::string valid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Unit unit = utf8_unit(text, at);
    if (unit.valid) result.append(text, at, unit.bytes);
    else result += fmt::format("\\x{:02x}", static_cast<unsigned>(unit.point));
    at += unit.bytes;
  }
  return result;
}

}  // namespace swell
