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

/// Source of the present blocks and absent nodes: a thread asks slurmctld for its nodes every few
/// seconds, holding no lock of slurmctld, and publishes what it makes of them; current_blocks() and
/// current_absent() do not wait.

/// Starts the thread, which waits until slurmctld answers. Never fails its caller.
void start_block_source(const Log& log) noexcept;
/// Stops the thread: waits for 1 s at most, and leaves it behind where it waits for an RPC.
void stop_block_source() noexcept;
/// The present blocks; null as long as they are not known.
std::shared_ptr<const Blocks> current_blocks() noexcept;
/// The nodes that slurmctld has not heard of since it started; null where there are none, and where
/// they stay away for longer than any registration takes.
std::shared_ptr<const Absent> current_absent() noexcept;

}  // namespace swell::select
