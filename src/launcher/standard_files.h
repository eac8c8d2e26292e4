// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace swell::launcher {

/// Opens /dev/null in place of standard input, output or error if it is closed. Otherwise a socket
/// could get its number, and printed text would be sent there. Returns whether standard output was
/// open; if it was not, what is printed there is lost.
inline bool open_standard_files() noexcept {
  const bool has_output = fcntl(STDOUT_FILENO, F_GETFD) >= 0;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) break;
  return has_output;
}

}  // namespace swell::launcher
