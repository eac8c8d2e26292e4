// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "launcher/spooled_input.h"

namespace swell::launcher {

/// The training program of one generation on one worker, with all processes that it starts. Its
/// process must be the reaper of their orphans, and get their SIGCHLD. During a live switch two
/// programs run beside each other; each reaps only what is its own.
class Program {
 public:
  Program();

  /// Runs it with these variables added, and without the SLURM_* variables that say what the
  /// allocation of this one worker is (see is_of_the_task()). It starts with no signal blocked or
  /// ignored, and dies with this process. A program that cannot be run ends with 126 or 127, as in
  /// a shell. `input`: its standard input, from the beginning; null: that of this process. False:
  /// no process.
  bool start(char** command, const std::vector<std::pair<std::string, std::string>>& environment,
             const SpooledInput* input = nullptr);
  bool runs() const noexcept { return pid_ > 0; }
  pid_t pid() const noexcept { return pid_; }

  /// Whether the program, or a process below it, would do something of its own on the signal: it
  /// has a handler, or has blocked it since this was last asked.
  bool listens_to(int number);

  /// Gives the signal to the program; where it does not handle it but processes below it do (a
  /// shell script around the trainer), to the topmost of those.
  void signal(int number) const;

  /// After SIGCHLD: the wait status, if the program has ended. Then ends what it left running;
  /// the program `beside` it and what that one started are left alone. 0: there is none.
  std::optional<int> reap(pid_t beside = 0);

 private:
  std::vector<pid_t> leftovers(pid_t beside) const;
  void end_leftovers(bool at_once, pid_t beside);
  pid_t pid_ = -1;
  std::string generation_;  ///< "SWELL_GENERATION=N" as it was given; empty: it was not
  bool blocked_before_ = false;
};

}  // namespace swell::launcher
