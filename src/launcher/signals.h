// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <csignal>
#include <optional>
#include <string>
#include <string_view>

namespace swell::launcher {

/// Signal by which Slurm warns of a companion's end in live mode. It does nothing to programs that
/// have no handler for it, but their shim receives it.
inline constexpr int kQuietSignal = SIGURG;

/// Returns whether most programs end on this signal, some of them after writing a checkpoint. Not
/// TERM, by which Slurm announces the job's end.
constexpr bool is_end_signal(int signal) {
  return signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
}

/// Reads "USR1", "SIGUSR1" or "10".
std::optional<int> signal_from(std::string_view text);
/// Returns a name such as "USR1"; the number if the signal has no name.
std::string signal_name(int number);

}  // namespace swell::launcher
