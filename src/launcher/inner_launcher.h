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
/// Below a process that handles the restart signal, only workers of torchrun are reported. `shim`:
/// the process that started `program`. Returns what was found, as text for people.
std::optional<std::string> inner_worker(
    pid_t program, const std::vector<std::pair<std::string, std::string>>& given,
    int restart_signal, pid_t shim = getpid());

/// Looks for a training, at or below `program`, that was started without its rank, as behind `env
/// -i` or a container's --cleanenv: a process that handles the restart signal, and has none of the
/// variables that tell its rank. Looks also below wrappers that forward the signal. Returns its
/// name, as text for people.
std::optional<std::string> worker_without_rank(pid_t program, int restart_signal,
                                               pid_t shim = getpid());

}  // namespace swell::launcher
