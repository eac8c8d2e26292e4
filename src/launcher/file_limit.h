// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace swell::launcher {

/// Raises this process's limit of open files to the highest that it may have; the limit it then
/// has.
std::uint64_t raise_file_limit();
/// In a child: the limit that the process began with, so that programs see what they would have
/// seen. Async-signal-safe.
void restore_file_limit() noexcept;

/// Limits by which an agent uses the open files that it may have.
struct FileBudget {
  int max_strangers = 0;  ///< connections that have not said who they are
  int max_strangers_per_address = 0;
  int max_connections = 0;  ///< workers and strangers
  std::string
      problem;  ///< one line for the user where the limit is too low for all workers; else empty
};
/// Workers first: `workers` that the run may have at once, at most `on_one_node` of them on a node.
FileBudget file_budget(std::uint64_t limit, int workers, int on_one_node);

}  // namespace swell::launcher
