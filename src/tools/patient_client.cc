// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/patient_client.h"

#include <cerrno>
#include <poll.h>
#include <sys/socket.h>

namespace swell::tools {

namespace {

constexpr std::size_t kMaxRequest = 8192;

bool may_try_again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

bool PatientClient::wait(short events) {
  using std::chrono::milliseconds;
  if (left_ <= Clock::duration::zero()) return false;
  const auto begin = Clock::now();
  pollfd waits{fd_, events, 0};
  const auto limit = std::chrono::ceil<milliseconds>(left_).count();
  const int ready = ::poll(&waits, 1, static_cast<int>(limit));
  left_ -= Clock::now() - begin;
  return ready > 0 || (ready < 0 && errno == EINTR);
}

std::string PatientClient::request() {
  std::string text;
  char part[1024];
  while (text.find("\r\n\r\n") == std::string::npos) {
    if (text.size() > kMaxRequest || !wait(POLLIN)) return {};
    const ssize_t got = ::recv(fd_, part, sizeof part, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && !may_try_again())) return {};
    if (got > 0) text.append(part, static_cast<std::size_t>(got));
  }
  return text;
}

bool PatientClient::send(std::string_view text) {
  while (!text.empty()) {
    if (!wait(POLLOUT)) return false;
    const ssize_t sent = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && !may_try_again()) return false;
    if (sent > 0) text.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

}  // namespace swell::tools
