// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/cluster/cluster.h"
#include "runtime/state/registry.h"
#include "runtime/state/tensor.h"

namespace swell::runtime {

/// A part that a rank holds, by numbers, so that a job of a thousand ranks is small.
struct Holding {
  std::uint32_t rank = 0;
  std::uint32_t part = 0;  ///< index into World::parts()
  friend auto operator<=>(const Holding&, const Holding&) = default;
};

/// An entry of a rank, by numbers.
struct Numbered {
  /// Index into World::tensors(); for an alias, that of the tensor for which it stands.
  std::uint32_t tensor = 0;
  std::uint32_t part = 0;  ///< index into World::parts()
};

/// Parts that each rank of a plan holds: the metadata of all ranks, with aliases resolved, and
/// equal distributions of different tensors stored once. Made by WorldBuilder or merge(); read by
/// plan_migration(). Immutable, hence safe to share.
class World {
 public:
  struct Tensor {
    TensorInfo info;
    std::uint32_t distribution = 0;  ///< index into distributions()
  };
  /// Holders of one tensor, in order of ranks, then of parts.
  using Distribution = std::vector<Holding>;

  /// Returns the GPU of each rank: the GPU that has its state, or, if the state is in host memory,
  /// the GPU that is assigned to the rank.
  const std::vector<cluster::GpuRef>& ranks() const noexcept { return ranks_; }
  /// Returns all tensors in order of names.
  const std::vector<Tensor>& tensors() const noexcept { return tensors_; }
  const std::vector<Distribution>& distributions() const noexcept { return distributions_; }
  const std::vector<Part>& parts() const noexcept { return parts_; }
  const Distribution& distribution_of(const Tensor& tensor) const noexcept {
    return distributions_[tensor.distribution];
  }
  const Part& part(std::uint32_t index) const noexcept { return parts_[index]; }
  /// Returns a rank's entries, in the order in which WorldBuilder::add() was given them.
  const std::vector<Numbered>& entries_of(std::size_t rank) const noexcept {
    return entries_[rank];
  }
  /// Returns the tensor of that name or alias; null if there is none.
  const Tensor* find(std::string_view name) const;
  /// Returns the name of the tensor for which each alias stands.
  const std::map<std::string, std::string, std::less<>>& aliases() const noexcept {
    return aliases_;
  }

 private:
  friend class WorldBuilder;
  std::vector<cluster::GpuRef> ranks_;
  std::vector<Tensor> tensors_;
  std::vector<Distribution> distributions_;
  std::vector<Part> parts_;
  std::vector<std::vector<Numbered>> entries_;  ///< by rank
  std::map<std::string, std::string, std::less<>> aliases_;
};

/// Builds a World. One thread at a time.
class WorldBuilder {
 public:
  /// Adds a rank and returns its number; ranks are numbered in the order in which they are added.
  std::uint32_t add_rank(cluster::GpuRef gpu);
  /// Adds a tensor and returns its number. The same name again returns the same number; another
  /// shape, dtype, kind or layer is refused.
  Result<std::uint32_t> add_tensor(const TensorInfo& info);
  /// Adds a part and returns its number; equal parts have the same number.
  std::uint32_t add_part(const Part& part);
  /// Records that `rank` holds `part` of `tensor`. REQUIRES: the three functions above gave these
  /// numbers.
  void hold(std::uint32_t rank, std::uint32_t tensor, std::uint32_t part);
  /// Records that `rank` holds the part of `entry`, and appends `entry` to the rank's entries,
  /// which keep this order.
  void add(std::uint32_t rank, Numbered entry);
  /// Adds what `rank` holds as one entry: its tensor, its part, and its alias.
  Result<void> add(std::uint32_t rank, const Entry& entry);
  /// Makes `alias` and `name` one tensor; both must have been added. Refuses another shape or
  /// dtype, and an alias of an alias.
  Result<void> add_alias(const std::string& alias, const std::string& name);

  /// Makes the world. Refuses, with the tensor's name, a part that does not fit the tensor's shape,
  /// elements that no rank holds, and elements that one rank holds twice.
  Result<World> finish() &&;

 private:
  World world_;
  std::vector<std::vector<Holding>> holdings_;  ///< by tensor
  std::unordered_map<std::string, std::uint32_t> numbers_;
  /// By tensor, the tensor last added after it: most ranks have the same tensors in the same
  /// order.
  std::vector<std::uint32_t> followers_;
  std::uint32_t last_tensor_ = 0;
  std::unordered_map<Part, std::uint32_t, PartHash> part_numbers_;
};

/// State of one rank, as the rank reports it to the others.
struct RankState {
  cluster::GpuRef gpu;
  std::vector<Entry> entries;  ///< addresses of entries are not read
};

/// Makes the world of these ranks, in order. The error names rank and tensor.
Result<World> merge(const std::vector<RankState>& ranks);

}  // namespace swell::runtime
