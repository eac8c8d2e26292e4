// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

/// Reads /proc for this user's processes. All are empty or false where a process has ended.
namespace swell::launcher {

std::vector<pid_t> children_of(pid_t pid);
/// Whether the signal is in the set of signals that /proc/PID/status names so: "SigCgt:" (those
/// with a handler), "SigBlk:".
bool has_signal_in(pid_t pid, const char* set, int signal);
inline bool handles(pid_t pid, int signal) { return has_signal_in(pid, "SigCgt:", signal); }
/// "NAME=VALUE" of each variable that it was started with.
std::vector<std::string> environment_of(pid_t pid);
/// The words of its command.
std::vector<std::string> command_of(pid_t pid);
/// Its short name, or that of its program where PyTorch has named it; other characters than
/// printable ASCII are replaced.
std::string name_of(pid_t pid);

}  // namespace swell::launcher
