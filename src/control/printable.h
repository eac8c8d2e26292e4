// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <fmt/format.h>
#include <string>
#include <string_view>

#include "core/utf8.h"

namespace swell::control {

/// Returns whether a character may control a terminal, hide, or change the order in which others
/// are read: control characters (C0, DEL, C1), bidirectional controls, line separators and
/// invisible format characters.
constexpr bool is_unprintable(char32_t point) noexcept {
  constexpr struct {
    char32_t first, last;
  } kRanges[] = {{0, 0x1f},         {0x7f, 0x9f},     {0xad, 0xad},       {0x61c, 0x61c},
                 {0x180e, 0x180e},  {0x200b, 0x200f}, {0x2028, 0x202e},   {0x2060, 0x206f},
                 {0xfeff, 0xfeff},  {0xfff9, 0xfffb}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
                 {0xe0000, 0xe0fff}};
  for (const auto& range : kRanges)
    if (point >= range.first && point <= range.last) return true;
  return false;
}

/// Returns a text from others in a form that is safe in a log, a table or a terminal: one line of
/// UTF-8 of at most about `max_bytes`, in which is_unprintable() characters and bytes that are not
/// UTF-8 are written as \xNN, \uNNNN or \UNNNNNNNN. A printable text stays as it is. Inline, since
/// job_submit/swell links nothing of Swell but the controller's library.
inline std::string printable(std::string_view text, std::size_t max_bytes = 2000) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (result.size() >= max_bytes) return result + "...";
    const Utf8Unit unit = utf8_unit(text, at);
    const auto value = static_cast<unsigned>(unit.point);
    if (unit.valid && !is_unprintable(unit.point)) result.append(text, at, unit.bytes);
    else if (value < 0x100) result += fmt::format("\\x{:02x}", value);
    else if (value < 0x10000) result += fmt::format("\\u{:04x}", value);
    else result += fmt::format("\\U{:08x}", value);
    at += unit.bytes;
  }
  return result;
}

/// Does the same for a text of several lines that Swell has put together: keeps line feeds.
inline std::string printable_lines(std::string_view text) {
  std::string result;
  for (;;) {
    const std::size_t end = text.find('\n');
    result += printable(text.substr(0, end), std::string_view::npos);
    if (end == std::string_view::npos) return result;
    result += '\n';
    text.remove_prefix(end + 1);
  }
}

}  // namespace swell::control
