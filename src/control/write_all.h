// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cerrno>
#include <string_view>
#include <unistd.h>

namespace swell::control {

/// Writes all of `text`. Returns false, with errno, if it cannot; a full disk may have taken a part
/// of it.
inline bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(fd, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return true;
}

}  // namespace swell::control
