// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>

#include "plugins/select/blocks.h"

namespace swell::select {

/// Functions that write to Slurm's log.
struct Log {
  void (*info)(const char*) = nullptr;
  void (*error)(const char*) = nullptr;
};

/// Source of the present blocks: a thread asks slurmctld for its nodes every few seconds, holding
/// no lock of slurmctld, and publishes the blocks made of them; current_blocks() does not wait.

/// Starts the thread, which waits until slurmctld answers. Never fails its caller.
void start_block_source(const Log& log) noexcept;
/// Stops the thread: waits for 1 s at most, and leaves it behind where it waits for an RPC.
void stop_block_source() noexcept;
/// The present blocks; null as long as they are not known.
std::shared_ptr<const Blocks> current_blocks() noexcept;

}  // namespace swell::select
