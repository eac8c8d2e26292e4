// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "launcher/exit.h"

namespace swell::launcher {

/// Records the signals that the user or Slurm sent the job, to tell which of them ended a program,
/// and which of them no program could answer. Pure; times are seconds of one clock.
class SignalRecord {
 public:
  struct Settings {
    int restart_signal = 10;
    double end_timeout_s = 30;                     ///< for programs to end for a signal
    std::optional<int> leave_code = std::nullopt;  ///< of a program that leaves for a resize
  };
  explicit SignalRecord(Settings settings) : settings_(settings) {}

  /// Notes that Slurm sent it to the job's own step. Returns false if another worker reported it.
  bool sent(double now, int signal);
  /// Returns the signals that were sent less than `seconds` ago.
  std::vector<int> sent_within(double seconds, double now) const;
  /// Returns the signals that were sent at `since` or later.
  std::vector<int> sent_since(double since) const;
  /// Returns the signal because of which a program ended with `exit`; 0: none. It died of the
  /// signal, or ended with an error soon after a signal that usually ends programs.
  int cause_of(const Exit& exit, double now) const;
  /// Returns whether the program left for a resize, by the exit code that its owner has named.
  bool is_leave(const Exit& exit) const;
  /// Returns whether the program died of the restart signal.
  bool is_restart(const Exit& exit) const;

  /// Keeps a signal that no program could answer: the next ones are sent it. The restart signal and
  /// TERM are handled elsewhere.
  void miss(int signal);
  bool has_missed() const noexcept { return !missed_.empty(); }
  void forget_missed() noexcept { missed_.clear(); }
  /// Returns the missed signals, which are sent now.
  std::set<int> pass_missed(double now);

 private:
  const Settings settings_;
  std::map<int, double> sent_;  ///< when
  std::set<int> missed_;
};

}  // namespace swell::launcher
