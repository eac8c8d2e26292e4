// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cerrno>
#include <string_view>
#include <unistd.h>

namespace swell::control {

/// Writes all of `text`; errno says why it could not. A full disk takes a part of it first.
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
