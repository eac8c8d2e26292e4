// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "launcher/spooled_input.h"

namespace swell::launcher {

/// The training program of one generation on one worker, with all processes that it starts. This
/// process must reap their orphans, and get their SIGCHLD. During a live switch two programs run
/// beside each other; each Program reaps only its own processes.
class Program {
 public:
  Program();

  /// Runs `command` with these variables added, and without the SLURM_* variables that describe the
  /// allocation of this one worker (see is_of_the_task()). It starts with no signal blocked or
  /// ignored, and dies with this process. A program that cannot be run ends with 126 or 127, as in
  /// a shell. `input`: its standard input, from the beginning; null: that of this process. Returns
  /// false if no process could be started.
  bool start(char** command, const std::vector<std::pair<std::string, std::string>>& environment,
             const SpooledInput* input = nullptr);
  bool runs() const noexcept { return pid_ > 0; }
  pid_t pid() const noexcept { return pid_; }

  /// Returns whether the program or a process below it handles the signal: it has a handler, or has
  /// blocked the signal both now and at the last call.
  bool listens_to(int number);

  /// Sends the signal to the program; if only processes below it handle it (a shell script around
  /// the trainer), to the topmost of those.
  void signal(int number) const;

  /// To be called after SIGCHLD. If the program has ended, returns its wait status, and ends what
  /// it left running, but not the program `beside` it (0: none) and that one's processes.
  std::optional<int> reap(pid_t beside = 0);

 private:
  std::vector<pid_t> leftovers(pid_t beside) const;
  void end_leftovers(bool at_once, pid_t beside);
  pid_t pid_ = -1;
  std::string generation_;  ///< "SWELL_GENERATION=N" as it was given; empty: it was not
  bool blocked_before_ = false;
};

}  // namespace swell::launcher
