// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <sys/types.h>

namespace swell::test {

/// A munged of the test's own, in a folder of its own; ends with the object. Where munged is not
/// installed, the constructor skips the test.
class PrivateMunge {
 public:
  PrivateMunge();
  ~PrivateMunge();
  PrivateMunge(const PrivateMunge&) = delete;
  PrivateMunge& operator=(const PrivateMunge&) = delete;

  const std::string& socket() const { return socket_; }
  /// Signals munged: SIGSTOP makes it hang, SIGKILL ends it.
  void signal(int number);
  /// Starts it again after SIGKILL.
  void restart();

 private:
  void run();

  std::string folder_;
  std::string socket_;
  pid_t pid_ = -1;
};

}  // namespace swell::test
