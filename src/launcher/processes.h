// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

/// Reads /proc for this user's processes. Results are empty or false if the process has ended.
namespace swell::launcher {

std::vector<pid_t> children_of(pid_t pid);
/// Returns whether the signal is in this set of /proc/PID/status: "SigCgt:" (signals with a
/// handler) or "SigBlk:" (blocked signals).
bool has_signal_in(pid_t pid, const char* set, int signal);
inline bool handles(pid_t pid, int signal) { return has_signal_in(pid, "SigCgt:", signal); }
/// Returns "NAME=VALUE" for each variable that the process was started with.
std::vector<std::string> environment_of(pid_t pid);
/// Returns the words of its command line.
std::vector<std::string> command_of(pid_t pid);
/// Returns its short name, or that of its program if PyTorch has renamed the process; characters
/// other than printable ASCII are replaced.
std::string name_of(pid_t pid);

}  // namespace swell::launcher
