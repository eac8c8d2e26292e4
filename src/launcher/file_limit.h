// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace swell::launcher {

/// Raises this process's limit of open files to its hard limit. Returns the limit that then
/// holds.
std::uint64_t raise_file_limit();
/// In a child: restores the limit that the parent process began with, so that programs get their
/// usual limit. Async-signal-safe.
void restore_file_limit() noexcept;

/// How an agent divides its open files among connections.
struct FileBudget {
  int max_strangers = 0;  ///< connections that have not authenticated yet
  int max_strangers_per_address = 0;
  int max_connections = 0;  ///< workers and strangers
  std::string
      problem;  ///< one line for the user if the limit is too low for all workers; else empty
};
/// Reserves files for workers first: at most `workers` in the run, at most `on_one_node` on a node.
FileBudget file_budget(std::uint64_t limit, int workers, int on_one_node);

}  // namespace swell::launcher
