// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <fmt/format.h>
#include <string>
#include <string_view>

namespace swell::control {

/// Text of others as it may stand in a log: control characters as \xNN, so that it can neither
/// begin a line of its own nor command a terminal, and at most `max_bytes` of it. Inline:
/// job_submit/swell needs it, which links nothing of Swell but the controller's library.
inline std::string printable(std::string_view text, std::size_t max_bytes = 2000) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (result.size() >= max_bytes) return result + "...";
    const auto byte = static_cast<unsigned char>(text[i]);
    // In UTF-8 the other control characters, U+0080 to U+009F, are C2 and then themselves.
    const bool upper = byte == 0xc2 && i + 1 < text.size() &&
                       (static_cast<unsigned char>(text[i + 1]) & 0xe0) == 0x80;
    if (byte < 0x20 || byte == 0x7f) result += fmt::format("\\x{:02x}", byte);
    else if (upper) result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[++i]));
    else result += text[i];
  }
  return result;
}

}  // namespace swell::control
