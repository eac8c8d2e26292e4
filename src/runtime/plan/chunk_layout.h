// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/plan/reshard_plan.h"
#include "runtime/state/world.h"

namespace swell::runtime {

/// Numbers all holdings of a world, tensor by tensor.
class Holdings {
 public:
  explicit Holdings(const World& world);
  std::size_t count() const noexcept { return count_; }
  std::size_t first_of(std::uint32_t tensor) const noexcept { return first_[tensor]; }
  /// Returns the holding's index in the tensor's distribution; fast if ranks are asked for in
  /// rising order. REQUIRES: the distribution has it.
  std::size_t index_of(std::uint32_t tensor, Holding holding);

 private:
  const World& world_;
  std::vector<std::size_t> first_;
  std::vector<std::size_t> next_;  ///< by tensor: next index in its distribution
  std::size_t count_ = 0;
};

/// Bytes of a block in a part, from its first to its last byte, including gaps between its runs.
struct Extent {
  std::int64_t begin = 0, end = 0;
};

/// The part of a reshard plan that all its tensors have in common. Made by layout_of(); read by
/// make_steps().
struct Layout {
  struct Range {
    std::uint32_t first = 0, count = 0;
  };
  std::vector<Range> needs;  ///< needs of a holder, by its index in the new distribution
  std::vector<Extent> to;    ///< by need
  std::vector<Extent> from;  ///< by candidate
  std::vector<std::uint32_t> from_index;  ///< by candidate: its index in the old distribution
};
Layout layout_of(const ReshardPlan& reshard, const World& from,
                 const World::Distribution& old_holders, const World& to,
                 const World::Distribution& new_holders, std::int64_t element);

}  // namespace swell::runtime
