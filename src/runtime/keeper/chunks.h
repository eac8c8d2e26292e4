// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "core/cluster/cluster.h"
#include "runtime/plan/migration.h"
#include "runtime/state/arena.h"
#include "runtime/state/world.h"
#include "runtime/wire/messages.h"

namespace swell::runtime {

/// Memory of an old rank that no rank needs any longer.
struct Release {
  std::uint32_t chunk = 0;          ///< the chunk before which the memory is released
  std::uint64_t at = 0, bytes = 0;  ///< range of the arena, in whole pages
  std::uint64_t slab = 0;           ///< released instead on a GPU; 0: the range is in the arena
};

/// A switch in chunks: which moves form a chunk, and which memory is released before each chunk. No
/// shim ever holds more than the bound beside the larger of its old and its new state. This holds
/// for its host memory, and for its GPU.
struct Chunks {
  std::uint32_t count = 0;
  /// By new rank, the moves with their chunk: only those of the rank for which the plan is made, or
  /// those of all ranks if it is made for none.
  std::vector<std::vector<Move>> moves;
  std::vector<std::vector<Release>> releases;  ///< by old rank, in order of chunks
  /// By new rank: the maximum that its shim holds beside the larger of both states, in host memory
  /// or on its GPU.
  std::vector<std::uint64_t> extra_bytes;
  std::uint64_t digest = 0;  ///< equal on all ranks that computed the same plan from the same input
};

/// Plans the migration and its chunks. Counts memory in arenas (in whole pages) and on GPUs (in
/// whole slabs), but not memory that programs allocated themselves. Pure and deterministic, like
/// plan_migration(). Returns an error if the bound is too small even in chunks.
Result<Chunks> plan_chunks(const Prepare& plan, const World& from, const World& to,
                           const cluster::Cluster& cluster, const MigrationOptions& options = {},
                           std::uint64_t page = Extents::kPage);

}  // namespace swell::runtime
