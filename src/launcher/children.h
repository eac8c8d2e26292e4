// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <poll.h>
#include <string>
#include <sys/types.h>
#include <vector>

#include "control/socket.h"
#include "core/result.h"
#include "launcher/generation_machine.h"
#include "launcher/spooled_input.h"

namespace swell::launcher {

/// Child processes: started without a shell, found again by their pid. One thread.
class Children {
 public:
  struct How {
    bool foreground = false;  ///< keeps standard input and the terminal's process group
    bool capture = false;     ///< stdout and stderr come back with Ended; else they are shared
    const SpooledInput* input = nullptr;  ///< in place of standard input
  };
  struct Ended {
    pid_t pid = 0;
    Exit exit;
    std::string output;
  };

  /// Looks the program up in PATH. Its signals are as a fresh process expects them, its limit of
  /// open files is the one that this process began with.
  Result<pid_t> start(const std::vector<std::string>& command,
                      const std::vector<std::string>& environment, How how);
  void signal(pid_t pid, int number) const;
  bool runs(pid_t pid) const { return children_.contains(pid); }
  bool none() const { return children_.empty(); }

  /// Returns the output of a captured child, as far as read() has seen it.
  std::string output_so_far(pid_t pid) const;

  /// To be polled, besides SIGCHLD; then read() drains what is there.
  void add_to(std::vector<pollfd>& polled) const;
  void read();
  /// Returns the children that have ended since the last call.
  std::vector<Ended> reap();

  /// One child, start to end; an error where it does not end within the time, or fails.
  static Result<std::string> output_of(const std::vector<std::string>& command,
                                       const std::vector<std::string>& environment,
                                       double timeout_s);

 private:
  struct Child {
    Descriptor pipe;
    std::string output;
  };
  static void drain(Child& child);
  std::map<pid_t, Child> children_;
};

}  // namespace swell::launcher
