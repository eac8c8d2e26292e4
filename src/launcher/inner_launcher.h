// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace swell::launcher {

/// Looks for a worker that a launcher within the program has started: torchrun in a script, behind
/// `timeout` or `uv run`, mpirun, deepspeed and so on. Such a process, at or below `program`, has
/// ranks of its own in its environment. `given`: the variables with which the program was started.
/// A process that handles the restart signal may start what it likes, unless only torchrun could
/// have started it. `shim`: has started `program`. Returns what was found, for people.
std::optional<std::string> inner_worker(
    pid_t program, const std::vector<std::pair<std::string, std::string>>& given,
    int restart_signal, pid_t shim = getpid());

}  // namespace swell::launcher
