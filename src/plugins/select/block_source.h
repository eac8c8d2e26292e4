// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>

#include "plugins/select/blocks.h"

namespace swell::select {

/// Where messages for Slurm's log go.
struct Log {
  void (*info)(const char*) = nullptr;
  void (*error)(const char*) = nullptr;
};

/// Keeps blocks up to date: a thread asks slurmctld for its nodes every few seconds, holding no
/// lock of slurmctld, and puts what it made of them where current_blocks() finds it without
/// waiting.

/// Starts the thread, which waits by itself until slurmctld answers. Never fails its caller.
void start_block_source(const Log& log) noexcept;
/// Ends it: waits for 1 s at most, and leaves it to itself where it waits for an RPC.
void stop_block_source() noexcept;
/// Null as long as nothing is known.
std::shared_ptr<const Blocks> current_blocks() noexcept;

}  // namespace swell::select
