// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/result.h"
#include "runtime/plan/migration.h"
#include "runtime/state/world.h"
#include "runtime/wire/messages.h"

namespace swell::runtime {

/// Flag of a memory position: set for a DevicePlace, clear for an offset in an arena.
inline constexpr std::uint64_t kOnGpu = std::uint64_t{1} << 62;

/// The memory that one move reads and fills. Memory is counted in segments: in an arena,
/// consecutive whole pages that the same moves use; on a GPU, whole slabs.
struct Step {
  std::uint64_t begin = 0, end = 0;        ///< segments of the source that it reads
  std::uint32_t target = 0;                ///< pool of its destination
  std::uint32_t to_begin = 0, to_end = 0;  ///< segments that it fills, in ChunkSteps::room
  std::uint32_t number = 0;                ///< number among the moves of all new ranks
};

/// Memory of an old rank, by position, and the moves that read it.
struct Source {
  std::vector<Step> queue;            ///< in the order in which they should be done
  std::vector<std::uint64_t> cuts;    ///< segment i goes from cut i to cut i + 1
  std::vector<std::uint32_t> needed;  ///< by segment: number of reading moves, plus 1 if kept
  std::vector<bool> is_held;          ///< by segment
  /// Pool of each held segment; empty: all segments are in host memory, in the pool with the rank's
  /// number.
  std::vector<std::uint32_t> pools;
};

/// Bytes that one shim holds in host memory, or on one GPU.
struct Pool {
  std::uint64_t live = 0, larger = 0, peak = 0;
  bool is_in_slabs = false;
};

/// All moves that are not in place, with the memory that they fill and read. Made by make_steps(),
/// consumed by plan_chunks().
struct ChunkSteps {
  std::vector<Source> sources;  ///< by old rank
  std::vector<Pool> pools;      ///< host memory of each old rank, then all other pools
  /// By new rank: the pools of its host memory and of its GPU; twice the same if it has no GPU.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pools_of;
  /// By segment of new memory: bytes that will be allocated when the first move fills it.
  std::vector<std::uint64_t> room;
  /// By new rank, plus one entry at the end: number of its first move, as Migration::needs() orders
  /// them.
  std::vector<std::uint32_t> first_move;
  std::size_t count = 0;  ///< number of steps
};

/// Lists the steps of a switch. Returns an error if a rank's GPU memory is not as the rank reported
/// it. REQUIRES: the worlds are those of `plan`, and the migration leads from one to the other.
Result<ChunkSteps> make_steps(const Prepare& plan, const World& from, const World& to,
                              const Migration& migration, std::uint64_t page);

}  // namespace swell::runtime
