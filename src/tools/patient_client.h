// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace swell::tools {

/// A client of HTTP that is waited for so long in all, for its request and to take the answer.
class PatientClient {
 public:
  using Clock = std::chrono::steady_clock;
  /// REQUIRES: `fd` is a connected socket, which outlives this.
  PatientClient(int fd, Clock::duration patience) : fd_(fd), left_(patience) {}

  /// The request up to its empty line; empty where it is none, or does not come in time.
  std::string request();
  /// Whether the client took all of `text` in the time that was left.
  bool send(std::string_view text);

 private:
  /// Until the socket is ready for `events`; false: no time is left.
  bool wait(short events);

  int fd_;
  Clock::duration left_;  ///< less what was waited so far; what is done between does not count
};

}  // namespace swell::tools
