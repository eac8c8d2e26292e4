// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <poll.h>
#include <string>
#include <sys/types.h>
#include <vector>

#include "core/result.h"
#include "launcher/exit.h"
#include "launcher/spooled_input.h"

namespace swell::launcher {

/// Starts Slurm's commands, signals them, and says which have ended. Implemented by Children; tests
/// give the agent and its parts an implementation that starts nothing.
class ProcessRunner {
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

  virtual ~ProcessRunner() = default;
  /// Looks the program up in PATH. It gets default handlers, no blocked signals, and the limit of
  /// open files that this process began with.
  virtual Result<pid_t> start(const std::vector<std::string>& command,
                              const std::vector<std::string>& environment, How how) = 0;
  virtual void signal(pid_t pid, int number) const = 0;
  /// Returns the output of a captured process, as far as it has been read.
  virtual std::string output_so_far(pid_t pid) const = 0;
  /// Returns whether no process runs.
  virtual bool none() const = 0;
  /// Adds the descriptors to poll, besides SIGCHLD; read() then reads what has arrived there.
  virtual void add_to(std::vector<pollfd>& polled) const = 0;
  virtual void read() = 0;
  /// Returns the processes that have ended since the last call.
  virtual std::vector<Ended> reap() = 0;
};

}  // namespace swell::launcher
