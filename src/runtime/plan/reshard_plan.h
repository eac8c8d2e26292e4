// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/cluster/cluster.h"
#include "runtime/state/region.h"
#include "runtime/state/world.h"

namespace swell::runtime {

/// Distance of a source from its destination, nearest first.
enum class Nearness : std::uint8_t {
  /// The device holds it as one run of memory, which becomes the new part's memory: nothing is
  /// copied.
  in_place,
  device,  ///< on the same device in another order: one copy within it
  node,    ///< on another device of the same node
  /// On one of the nearest other nodes that have it, on the device of the same number (the same
  /// rail, if the fabric has rails).
  rail,
  rack,  ///< on one of the nearest other nodes that have it, on another device
  far,   ///< on any other node
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

/// An old rank that holds a block, and the part that has the block.
struct Candidate {
  std::uint32_t rank, part;
  Nearness nearness;
};

/// A block that one new rank needs, and the old ranks that hold it, nearest first.
struct Need {
  Box box;
  std::int64_t elements;
  std::uint32_t to_rank, to_part;
  std::uint32_t first, count;  ///< candidates of the need, in ReshardPlan::candidates
  std::uint32_t open;          ///< index in ReshardPlan::open; kNoChoice: it has only one candidate
  static constexpr std::uint32_t kNoChoice = UINT32_MAX;
};

/// Needs of a tensor's new holders; the candidates are old holders. Made by plan_reshard(); read by
/// Migration.
struct ReshardPlan {
  std::vector<Need> needs;
  std::vector<Candidate> candidates;
  /// Indexes of the needs that are not in place and have several candidates.
  std::vector<std::uint32_t> open;
};

/// Cuts what `new_holders` need into blocks of at most `max_elements`, each of which every old
/// holder has entirely or not at all. A part that its device holds as one run of memory takes over
/// that memory. REQUIRES: both lists are of one tensor, and each holds all of it.
ReshardPlan plan_reshard(const Worlds& worlds, std::span<const Holding> old_holders,
                         std::span<const Holding> new_holders, std::int64_t max_elements);

}  // namespace swell::runtime
