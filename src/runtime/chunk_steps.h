// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "runtime/messages.h"
#include "runtime/migration.h"
#include "runtime/world.h"

namespace swell::runtime {

/// A move as far as memory is concerned. Memory is counted in segments: whole pages one after the
/// other that are used by the same moves.
struct Step {
  std::uint64_t begin = 0, end = 0;        ///< the source's segments that it reads
  std::uint32_t target = 0;                ///< shim
  std::uint32_t to_begin = 0, to_end = 0;  ///< segments that it brings, in ChunkSteps::room
  std::uint32_t number = 0;                ///< among the moves of all new ranks
};

/// What an old rank holds, by offset in its arena, and what is read of it.
struct Source {
  std::vector<Step> queue;            ///< in the order in which they are to come
  std::vector<std::uint64_t> cuts;    ///< segment i goes from cut i to the next one
  std::vector<std::uint32_t> needed;  ///< by segment: by how many moves, and once where it is kept
  std::vector<bool> is_held;          ///< by segment
};

/// Bytes that one shim holds.
struct ShimBytes {
  std::uint64_t live = 0, larger = 0, peak = 0;
};

/// All moves that are not in place, with the memory that they take and read. Made by make_steps(),
/// consumed by plan_chunks().
struct ChunkSteps {
  std::vector<Source> sources;         ///< by old rank
  std::vector<ShimBytes> shims;        ///< of the old ranks, then of those that are new
  std::vector<std::uint32_t> shim_of;  ///< by new rank
  /// Of new memory, by segment: bytes that are yet to be taken, once something comes there.
  std::vector<std::uint64_t> room;
  /// By new rank, and one more: number of its first move, as Migration::needs() has them.
  std::vector<std::uint32_t> first_move;
  std::size_t count = 0;  ///< of steps
};

/// REQUIRES: the worlds are those of `plan`, the migration is from one to the other.
Result<ChunkSteps> make_steps(const Prepare& plan, const World& from, const World& to,
                              const Migration& migration, std::uint64_t page);

}  // namespace swell::runtime
