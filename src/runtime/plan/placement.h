// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/plan/migration.h"
#include "runtime/state/store.h"
#include "runtime/state/world.h"
#include "runtime/transport/transport.h"
#include "runtime/wire/messages.h"

namespace swell::runtime {

/// Runs that come from one old rank and form one block.
struct Fetch {
  std::int32_t rank = 0;
  Memory from = Memory::arena, to = Memory::arena;
  std::vector<Run> runs;
  bool only_there = false;  ///< no staying rank has it
  std::uint32_t chunk = 0;  ///< the chunk in which it is fetched
  std::uint64_t bytes() const noexcept;
};

/// The places of the tensors of a rank's next generation, and what must be fetched for them. Made
/// by place_all(); read by Fetcher; once committed, it is the keeper's table.
struct Placement {
  std::vector<Held> table;  ///< each tensor in the arena counts as a use of the store
  std::vector<Fetch> fetches;
  /// Ranges taken for the tensors: offset, bytes.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> fresh;
  std::uint64_t fresh_bytes = 0;  ///< sum of `fresh`
  std::uint64_t extra_bytes = 0;  ///< bytes held until the commit that neither generation needs
  std::uint64_t kept_bytes = 0;   ///< bytes that stay in place
  /// The new program's GPU (Device::gpu()) and its granularity; empty: it has no tensor on a GPU.
  std::string gpu;
  std::uint64_t granularity = 0;
  std::uint64_t slab_bytes = Slabs::kSlabBytes;  ///< size of a slab that several tensors share
  std::vector<SlabSize> fresh_slabs;             ///< GPU memory that the program must allocate
  std::set<std::uint64_t> kept_slabs;            ///< slabs that the program must map
};

/// Makes the world of one of the plans, with entries in the order of `plan`.
Result<World> old_world(const Prepare& plan);
Result<World> new_world(const Prepare& plan);

/// Finds what an old rank holds by the numbers of a move. REQUIRES: `plan` and `from` outlive it.
class Sources {
 public:
  Sources(const Prepare& plan, const World& from) : plan_(plan), from_(from) {}
  /// Returns nullptr if the rank does not hold it.
  const Held* find(const Move& move);

 private:
  const Prepare& plan_;
  const World& from_;
  std::map<std::uint32_t, std::map<std::pair<const World::Tensor*, Part>, Held>>
      by_rank_;  ///< filled when a rank is first asked for
};

/// Gives every tensor of new rank `plan.new_rank` a place. `moves`: the migration's needs_of() that
/// rank. On an error `made` has the tensors that were placed so far.
Result<void> place_all(const Prepare& plan, const World& from, const World& to,
                       const std::vector<Move>& moves, Store& store, Placement& made);

}  // namespace swell::runtime
