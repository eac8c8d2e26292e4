// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace swell::launcher {

/// If the command is itself a launcher of workers (torchrun, accelerate launch, deepspeed, mpirun,
/// srun and their like), returns a sentence that says so, and what to write instead: swellrun
/// starts every worker itself, so each of them would be a training of its own. nullopt: the command
/// is an ordinary program.
std::optional<std::string> launcher_in(const std::vector<std::string>& command);

/// Returns whether the word at `at` runs the program that follows it, as `timeout` and `uv run` do.
bool is_wrapper(const std::vector<std::string>& command, std::size_t at);

}  // namespace swell::launcher
