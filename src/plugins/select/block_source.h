// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>

#include "plugins/select/absence.h"
#include "plugins/select/blocks.h"

namespace swell::select {

/// Functions that write to Slurm's log.
struct Log {
  void (*info)(const char*) = nullptr;
  void (*error)(const char*) = nullptr;
};

/// Source of the present blocks and absent nodes. A thread asks slurmctld for its nodes every few
/// seconds, without holding a lock of slurmctld, and publishes the result; current_blocks() and
/// current_absent() do not wait.

/// Starts the thread, which waits until slurmctld answers. Never fails its caller.
void start_block_source(const Log& log) noexcept;
/// Stops the thread. Waits at most 1 s, and abandons the thread if it is waiting for an RPC.
void stop_block_source() noexcept;
/// Returns the present blocks; null while they are not known.
std::shared_ptr<const Blocks> current_blocks() noexcept;
/// Returns the nodes from which slurmctld has not heard since it started; null if there are none,
/// or if they stay away longer than any registration takes.
std::shared_ptr<const Absent> current_absent() noexcept;

}  // namespace swell::select
