// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "core/cluster/cluster.h"
#include "runtime/arena.h"
#include "runtime/messages.h"
#include "runtime/migration.h"
#include "runtime/world.h"

namespace swell::runtime {

/// Memory of an old rank's that nobody needs any more.
struct Release {
  std::uint32_t chunk = 0;          ///< it goes before this one is fetched
  std::uint64_t at = 0, bytes = 0;  ///< of the arena, in whole pages
  std::uint64_t slab = 0;           ///< of a GPU, instead; 0: of the arena
};

/// A switch in chunks: which moves come together, and what goes before each chunk, so that no shim
/// ever holds more than the larger of its old and its new state and the bound: in the host's memory
/// that, and on its GPU that of what is there.
struct Chunks {
  std::uint32_t count = 0;
  /// By new rank, with their chunk: of the one that the plan is for, or of all where it is for
  /// none.
  std::vector<std::vector<Move>> moves;
  std::vector<std::vector<Release>> releases;  ///< by old rank, rising by chunk
  /// By new rank: the largest that its shim holds beside the larger of both states, in the host's
  /// memory or on its GPU.
  std::vector<std::uint64_t> extra_bytes;
  std::uint64_t digest = 0;  ///< equal on all ranks that made the same of the same
};

/// Plans the migration and its chunks. Counted is what is in arenas, in whole pages, and on GPUs,
/// in whole slabs; memory that programs allocated themselves counts for nothing. Pure and
/// deterministic, as plan_migration(). An error: the bound is too small for it in chunks, too.
Result<Chunks> plan_chunks(const Prepare& plan, const World& from, const World& to,
                           const cluster::Cluster& cluster, const MigrationOptions& options = {},
                           std::uint64_t page = Extents::kPage);

}  // namespace swell::runtime
