// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/result.h"
#include "runtime/region.h"
#include "runtime/world.h"

namespace swell::runtime {

/// How far a source is from its destination, nearest first.
enum class Nearness : std::uint8_t {
  in_place,  ///< the device holds it as one run of memory that the new part can be: nothing is
             ///< copied
  device,    ///< on the same device, in another order: one copy within it
  node,
  rail,  ///< another node, as near as nodes get; the device of the same number, on the same rail of
         ///< such fabrics
  rack,  ///< another node, as near as nodes get
  far,
};
inline constexpr int kNearnesses = 6;
const char* to_text(Nearness nearness) noexcept;

/// One block of one tensor that one new rank gets from one old rank.
struct Move {
  std::uint32_t tensor = 0;                    ///< index into the new world's tensors()
  std::uint32_t from_tensor = 0;               ///< the same in the old world's
  std::uint32_t from_rank = 0, from_part = 0;  ///< of the old world
  std::uint32_t to_rank = 0, to_part = 0;      ///< of the new world
  Box box;                                     ///< what moves, in the tensor's coordinates
  std::int64_t bytes = 0;
  Nearness nearness = Nearness::in_place;
};

/// Bytes by how far they come, and the time of the busiest link, if each ran at full speed.
struct MigrationSummary {
  std::int64_t bytes[kNearnesses] = {};
  double busiest_link_s = 0;
  /// Bytes that leave their device.
  std::int64_t moved_bytes() const noexcept;
  /// Bytes that leave their node.
  std::int64_t network_bytes() const noexcept;
  std::int64_t total_bytes() const noexcept;
};

struct MigrationOptions {
  /// Blocks larger than this are cut, so that several replicas can send them, and a chunk of memory
  /// is at most this.
  std::int64_t max_move_bytes = std::int64_t{64} << 20;
};

/// What every byte of the new plan is made from. Immutable.
class Migration {
 public:
  /// Everything that rank `rank` of the new world needs, in place or moved, by tensor; a block
  /// once.
  std::vector<Move> needs_of(std::uint32_t rank) const;
  const MigrationSummary& summary() const noexcept { return summary_; }
  /// Bytes that new rank `rank` receives from other devices.
  std::int64_t incoming_bytes(std::uint32_t rank) const noexcept { return incoming_[rank]; }
  /// Same for the same worlds and cluster, everywhere; ranks compare it before any byte moves.
  std::uint64_t digest() const noexcept { return digest_; }

 private:
  friend class Migrator;
  struct Candidate {
    std::uint32_t rank, part;
    Nearness nearness;
  };
  /// A block that one new rank needs, and the old ranks that hold it, nearest first.
  struct Need {
    Box box;
    std::int64_t elements;
    std::uint32_t to_rank, to_part;
    std::uint32_t first, count;  ///< in Recut::candidates
  };
  /// One old and one new layout of tensors of one shape and dtype: worked out once for all of them.
  struct Recut {
    std::vector<Need> needs;
    std::vector<Candidate> candidates;
    std::vector<std::uint32_t> open;  ///< needs with a choice to make: not in place
  };
  struct Pair {
    std::uint32_t tensor, from_tensor;
    std::uint32_t recut;
    std::uint32_t first_choice;  ///< of its open needs, in choices_
  };
  Move make_move(const Pair& pair, const Need& need, const Candidate& from) const;

  std::vector<Recut> recuts_;
  std::vector<Pair> pairs_;
  std::vector<std::uint16_t> choices_;  ///< a candidate's place in its need's list
  std::vector<std::int64_t> incoming_;
  std::vector<std::int64_t> element_bytes_;  ///< by new tensor
  MigrationSummary summary_;
  std::uint64_t digest_ = 0;
};

/// Where each byte of the new plan comes from. In place where the device has it; else from the
/// nearest holder, the least busy of those; then, while it shortens the time of the busiest link,
/// from a farther one. Pure and deterministic: no clock, no addresses, whole numbers only. An error
/// where the old world lacks a tensor that is not optional, or has it in another shape or dtype, or
/// where a rank stands outside the cluster.
Result<Migration> plan_migration(const World& from, const World& to,
                                 const cluster::Cluster& cluster, MigrationOptions options = {});

}  // namespace swell::runtime
