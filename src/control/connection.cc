// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/connection.h"

#include <array>
#include <cerrno>
#include <sys/socket.h>

namespace swell::control {

bool Connection::read_some() {
  std::array<char, 16 * 1024> bytes;
  const ssize_t count = recv(fd.get(), bytes.data(), bytes.size(), 0);
  if (count > 0 && !close_by) reader.append({bytes.data(), static_cast<std::size_t>(count)});
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

bool Connection::flush() {
  while (!out.empty()) {
    const ssize_t count = send(fd.get(), out.data(), out.size(), MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    out.erase(0, static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace swell::control
