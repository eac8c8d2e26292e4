// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/result.h"
#include "runtime/plan/reshard_plan.h"
#include "runtime/state/region.h"
#include "runtime/state/world.h"

namespace swell::runtime {

/// One block of one tensor that one new rank gets from one old rank.
struct Move {
  std::uint32_t tensor = 0;                    ///< index into the new world's tensors()
  std::uint32_t from_tensor = 0;               ///< index into the old world's tensors()
  std::uint32_t from_rank = 0, from_part = 0;  ///< indexes into the old world
  std::uint32_t to_rank = 0, to_part = 0;      ///< indexes into the new world
  Box box;                                     ///< the block, in the tensor's coordinates
  std::int64_t bytes = 0;
  Nearness nearness = Nearness::in_place;
  bool only_there = false;  ///< no staying rank has it
  std::uint32_t chunk = 0;  ///< in a switch in chunks: the chunk in which it is moved
};

/// Bytes by Nearness, and the time that the busiest link needs at full speed.
struct MigrationSummary {
  std::int64_t bytes[kNearnesses] = {};
  double busiest_link_s = 0;
  /// Returns the bytes that leave their device.
  std::int64_t moved_bytes() const noexcept;
  /// Returns the bytes that leave their node.
  std::int64_t network_bytes() const noexcept;
  std::int64_t total_bytes() const noexcept;
};

struct MigrationOptions {
  /// Maximum size of a move: larger blocks are cut, so that several replicas can send them and a
  /// chunk of memory is at most this large.
  std::int64_t max_move_bytes = std::int64_t{64} << 20;
  /// By old rank, whether it must exit by a deadline; such a rank sends nothing that another rank
  /// has too. Empty: none must.
  std::vector<bool> leaving = {};
};

/// The source of every byte of the new plan. Immutable.
class Migration {
 public:
  /// One tensor. The reshard plan is computed once for all tensors of one shape and dtype that have
  /// the same holders in both plans.
  struct Pair {
    std::uint32_t tensor, from_tensor;
    std::uint32_t reshard;       ///< index into reshards()
    std::uint32_t first_choice;  ///< index of the choice for the first of its open needs
  };
  /// Returns all tensors of the new plan that are in the old one, in order of `tensor`.
  const std::vector<Pair>& pairs() const noexcept { return pairs_; }
  const std::vector<ReshardPlan>& reshards() const noexcept { return reshards_; }
  /// Returns the index, in ReshardPlan::candidates, of the rank from which a block comes. REQUIRES:
  /// `need` belongs to the pair's reshard plan.
  std::uint32_t source_of(const Pair& pair, const Need& need) const noexcept {
    return need.first +
           (need.open == Need::kNoChoice ? 0u : choices_[pair.first_choice + need.open]);
  }
  /// Returns all blocks that rank `rank` of the new world needs, in place or moved, by tensor; each
  /// block once.
  std::vector<Move> needs_of(std::uint32_t rank) const;
  /// Returns the same for all ranks of the new world.
  std::vector<std::vector<Move>> needs() const;
  const MigrationSummary& summary() const noexcept { return summary_; }
  /// Returns a digest that is equal on all ranks for equal worlds and clusters; ranks compare it
  /// before any byte moves.
  std::uint64_t digest() const noexcept { return digest_; }

 private:
  friend class Migrator;
  Move make_move(const Pair& pair, const Need& need, const Candidate& from) const;
  template <typename Each>
  void each_need(Each&& each) const;
  bool leaves(std::uint32_t rank) const noexcept { return !leaving_.empty() && leaving_[rank]; }

  std::vector<ReshardPlan> reshards_;
  std::vector<Pair> pairs_;
  std::vector<std::uint16_t> choices_;       ///< index of the chosen candidate in its need's list
  std::size_t new_ranks_ = 0;                ///< ranks of the new world
  std::vector<std::int64_t> element_bytes_;  ///< by new tensor
  std::vector<bool> leaving_;                ///< by old rank; empty: none leaves
  MigrationSummary summary_;
  std::uint64_t digest_ = 0;
};

/// Plans the source of each byte of the new plan: in place if the device has it; otherwise the
/// least busy of the nearest holders; then, while that shortens the time of the busiest link, a
/// farther holder. Pure and deterministic: no clock, no addresses, whole numbers only. Returns an
/// error if the old world lacks a tensor that is not optional or has it in another shape or dtype,
/// or if a rank is outside the cluster.
Result<Migration> plan_migration(const World& from, const World& to,
                                 const cluster::Cluster& cluster, MigrationOptions options = {});

}  // namespace swell::runtime
