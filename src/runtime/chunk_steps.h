// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/result.h"
#include "runtime/messages.h"
#include "runtime/migration.h"
#include "runtime/world.h"

namespace swell::runtime {

/// Where memory stands: an offset in an arena, or a DevicePlace and this bit.
inline constexpr std::uint64_t kOnGpu = std::uint64_t{1} << 62;

/// A move as far as memory is concerned. Memory is counted in segments: in an arena whole pages one
/// after the other that are used by the same moves, on a GPU whole slabs.
struct Step {
  std::uint64_t begin = 0, end = 0;        ///< the source's segments that it reads
  std::uint32_t target = 0;                ///< pool
  std::uint32_t to_begin = 0, to_end = 0;  ///< segments that it brings, in ChunkSteps::room
  std::uint32_t number = 0;                ///< among the moves of all new ranks
};

/// Memory of an old rank, by where it stands, and what is read of it.
struct Source {
  std::vector<Step> queue;            ///< in the order in which they are to come
  std::vector<std::uint64_t> cuts;    ///< segment i goes from cut i to the next one
  std::vector<std::uint32_t> needed;  ///< by segment: by how many moves, and once where it is kept
  std::vector<bool> is_held;          ///< by segment
  /// By segment, if it is held; empty: all are of the host's memory, the pool of the rank's number.
  std::vector<std::uint32_t> pools;
};

/// Bytes that one shim holds in the host's memory, or on one GPU.
struct Pool {
  std::uint64_t live = 0, larger = 0, peak = 0;
  bool is_in_slabs = false;
};

/// All moves that are not in place, with the memory that they take and read. Made by make_steps(),
/// consumed by plan_chunks().
struct ChunkSteps {
  std::vector<Source> sources;  ///< by old rank
  std::vector<Pool> pools;      ///< of the host's memory of old ranks, then all others
  /// By new rank: of the host's memory and of its GPU's, twice the same if it has none.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pools_of;
  /// By segment of new memory: bytes that are yet to be taken, once something comes there.
  std::vector<std::uint64_t> room;
  /// By new rank, and one more: number of its first move, as Migration::needs() has them.
  std::vector<std::uint32_t> first_move;
  std::size_t count = 0;  ///< of steps
};

/// An error where a rank's GPU memory is not as it says. REQUIRES: the worlds are those of `plan`,
/// the migration is from one to the other.
Result<ChunkSteps> make_steps(const Prepare& plan, const World& from, const World& to,
                              const Migration& migration, std::uint64_t page);

}  // namespace swell::runtime
