// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/messages.h"
#include "runtime/migration.h"
#include "runtime/store.h"
#include "runtime/transport.h"
#include "runtime/world.h"

namespace swell::runtime {

/// Runs that come from one old rank to make one block.
struct Fetch {
  std::int32_t rank = 0;
  Memory from = Memory::arena, to = Memory::arena;
  std::vector<Run> runs;
  bool only_there = false;  ///< no rank has it that stays
  std::uint32_t chunk = 0;  ///< with which it comes
  std::uint64_t bytes() const noexcept;
};

/// Where the tensors of a rank's next epoch stand, and what has to be fetched for them. Made by
/// place_all(); read by Intake and, once it is committed, kept as the keeper's table.
struct Placement {
  std::vector<Held> table;  ///< each tensor of the arena counts as a use of the store
  std::vector<Fetch> fetches;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> fresh;  ///< taken for them: offset, bytes
  std::uint64_t fresh_bytes = 0;                               ///< that are taken
  std::uint64_t extra_bytes =
      0;                         ///< that are held beside what either epoch needs, until the commit
  std::uint64_t kept_bytes = 0;  ///< that stay in place
  /// The new program's GPU, by Device::gpu(), and its granularity; empty: it has no tensor there.
  std::string gpu;
  std::uint64_t granularity = 0;
  std::uint64_t slab_bytes = Slabs::kSlabBytes;  ///< of one that several tensors share
  std::vector<SlabSize> fresh_slabs;             ///< GPU memory that the program has to take
  std::set<std::uint64_t> kept_slabs;            ///< that it has to map
};

/// The worlds of both plans, entry by entry as they are in `plan`.
Result<World> old_world(const Prepare& plan);
Result<World> new_world(const Prepare& plan);

/// Finds what an old rank holds as a move names it. REQUIRES: `plan` and `from` outlive it.
class Sources {
 public:
  Sources(const Prepare& plan, const World& from) : plan_(plan), from_(from) {}
  /// nullptr: the rank does not hold it.
  const Held* find(const Move& move);

 private:
  const Prepare& plan_;
  const World& from_;
  std::map<std::uint32_t, std::map<std::pair<const World::Tensor*, Part>, Held>>
      by_rank_;  ///< made as ranks are asked for
};

/// Gives every tensor of new rank `plan.new_rank` its place. `moves` is the migration's
/// needs_of() it. On an error `made` has the tensors that were placed so far.
Result<void> place_all(const Prepare& plan, const World& from, const World& to,
                       const std::vector<Move>& moves, Store& store, Placement& made);

}  // namespace swell::runtime
