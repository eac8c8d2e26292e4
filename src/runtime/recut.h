// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/cluster/cluster.h"
#include "runtime/region.h"
#include "runtime/world.h"

namespace swell::runtime {

/// Distance of a source from its destination, nearest first.
enum class Nearness : std::uint8_t {
  /// The device holds it as one run of memory, which the new part takes over: nothing is copied.
  in_place,
  device,  ///< on the same device, in another order: one copy within it
  node,    ///< another device of the same node
  /// One of the nearest other nodes that have it, device of the same number: on one rail, where the
  /// fabric has rails.
  rail,
  rack,  ///< one of the nearest other nodes that have it, another device
  far,   ///< any other node
};
inline constexpr int kNearnesses = 6;
const char* to_text(Nearness nearness) noexcept;

/// Both worlds of a migration, with the number of each rank's device.
struct Worlds {
  const World& from;
  const World& to;
  const cluster::Cluster& cluster;
  std::vector<std::uint32_t> from_device, to_device;
};

/// An old rank that holds a block, and in which part.
struct Candidate {
  std::uint32_t rank, part;
  Nearness nearness;
};

/// A block that one new rank needs, and the old ranks that hold it, nearest first.
struct Need {
  Box box;
  std::int64_t elements;
  std::uint32_t to_rank, to_part;
  std::uint32_t first, count;  ///< candidates of the need, in Recut::candidates
  std::uint32_t open;          ///< index in Recut::open; kNoChoice: it has one candidate
  static constexpr std::uint32_t kNoChoice = UINT32_MAX;
};

/// Needs of a tensor's new holders; candidates are old ones. Made by recut(); read by Migration.
struct Recut {
  std::vector<Need> needs;
  std::vector<Candidate> candidates;
  /// Indexes of needs that are not in place, which have a choice of candidates.
  std::vector<std::uint32_t> open;
};

/// Cuts what `new_holders` need into blocks of at most `max_elements`, each of which an old holder
/// has wholly or not at all. A part whose device has it as one run of memory takes that over.
/// REQUIRES: both are of one tensor, and hold all of it.
Recut recut(const Worlds& worlds, std::span<const Holding> old_holders,
            std::span<const Holding> new_holders, std::int64_t max_elements);

}  // namespace swell::runtime
