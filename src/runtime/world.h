// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/cluster/cluster.h"
#include "runtime/registry.h"
#include "runtime/tensor.h"

namespace swell::runtime {

/// A rank's hold of a part, by number, so that a job of a thousand ranks is small.
struct Holding {
  std::uint32_t rank = 0;
  std::uint32_t part = 0;  ///< index into World::parts()
  friend auto operator<=>(const Holding&, const Holding&) = default;
};

/// An entry of a rank, by numbers.
struct Numbered {
  std::uint32_t tensor = 0;  ///< index into World::tensors(); of an alias, what it stands for
  std::uint32_t part = 0;    ///< index into World::parts()
};

/// Parts that each rank of a plan holds: the metadata of all ranks, with aliases resolved and equal
/// distributions of different tensors kept once. Made by WorldBuilder or merge(); read by
/// plan_migration(). Immutable, hence safe to share.
class World {
 public:
  struct Tensor {
    TensorInfo info;
    std::uint32_t distribution = 0;  ///< index into distributions()
  };
  /// Holders of one tensor, rising by rank, then by part.
  using Distribution = std::vector<Holding>;

  /// The GPU that each rank keeps its state on, or stands for where that is in host memory.
  const std::vector<cluster::GpuRef>& ranks() const noexcept { return ranks_; }
  /// All tensors, rising by name.
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
  /// The tensor of that name or alias; null where there is none.
  const Tensor* find(std::string_view name) const;
  /// Name of the tensor that each alias stands for.
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

/// Puts a World together. One thread at a time.
class WorldBuilder {
 public:
  /// Adds a rank and returns its number; ranks are numbered in the order in which they are added.
  std::uint32_t add_rank(cluster::GpuRef gpu);
  /// Adds a tensor and returns its number. The same name again gives the same number; another
  /// shape, dtype, kind or layer is refused.
  Result<std::uint32_t> add_tensor(const TensorInfo& info);
  /// Adds a part and returns its number; equal parts have the same.
  std::uint32_t add_part(const Part& part);
  /// Records that `rank` holds `part` of `tensor`. REQUIRES: the three functions above gave these
  /// numbers.
  void hold(std::uint32_t rank, std::uint32_t tensor, std::uint32_t part);
  /// The same, as one of its entries: these are in the order in which they are added.
  void add(std::uint32_t rank, Numbered entry);
  /// Adds what `rank` holds as one entry: its tensor, its part, and its alias.
  Result<void> add(std::uint32_t rank, const Entry& entry);
  /// Makes `alias` and `name` one tensor; both have been added. Refused: another shape or dtype, an
  /// alias of an alias.
  Result<void> add_alias(const std::string& alias, const std::string& name);

  /// Makes the world. Refused, with the tensor's name: a part that is not of its shape; elements
  /// that no rank holds; elements that one rank holds twice.
  Result<World> finish() &&;

 private:
  World world_;
  std::vector<std::vector<Holding>> holdings_;  ///< by tensor
  std::unordered_map<std::string, std::uint32_t> numbers_;
  /// By tensor, the one that was added after it last: ranks mostly have the same ones in one order.
  std::vector<std::uint32_t> followers_;
  std::uint32_t last_tensor_ = 0;
  std::unordered_map<Part, std::uint32_t, PartHash> part_numbers_;
};

/// State of one rank, as it tells the others.
struct RankState {
  cluster::GpuRef gpu;
  std::vector<Entry> entries;  ///< addresses are not read
};

/// Makes the world of these ranks, in their order. The error names rank and tensor.
Result<World> merge(const std::vector<RankState>& ranks);

}  // namespace swell::runtime
