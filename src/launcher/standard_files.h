// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace swell::launcher {

/// Opens /dev/null in place of standard input, output or error that is closed. A socket would have
/// its number otherwise, and what is printed would be sent there. Returns whether standard output
/// was open: what is printed there is lost otherwise.
inline bool open_standard_files() noexcept {
  const bool has_output = fcntl(STDOUT_FILENO, F_GETFD) >= 0;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) break;
  return has_output;
}

}  // namespace swell::launcher
