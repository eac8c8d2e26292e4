// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/recut.h"
#include "runtime/world.h"

namespace swell::runtime {

/// Numbers all holdings of a world, tensor by tensor.
class Holdings {
 public:
  explicit Holdings(const World& world);
  std::size_t count() const noexcept { return count_; }
  std::size_t first_of(std::uint32_t tensor) const noexcept { return first_[tensor]; }
  /// Index in the tensor's distribution; quick where ranks are asked for as they rise. REQUIRES: it
  /// is in there.
  std::size_t index_of(std::uint32_t tensor, Holding holding);

 private:
  const World& world_;
  std::vector<std::size_t> first_;
  std::vector<std::size_t> next_;  ///< by tensor: index in its distribution
  std::size_t count_ = 0;
};

/// Bytes of a part, from the first to the last of a block, with what is between its runs.
struct Extent {
  std::int64_t begin = 0, end = 0;
};

/// The part of a recut that is alike for all its tensors. Made by layout_of(); read by
/// make_steps().
struct Layout {
  struct Range {
    std::uint32_t first = 0, count = 0;
  };
  std::vector<Range> needs;               ///< of a holder, by index in the new distribution
  std::vector<Extent> to;                 ///< by need
  std::vector<Extent> from;               ///< by candidate
  std::vector<std::uint32_t> from_index;  ///< by candidate: in the old distribution
};
Layout layout_of(const Recut& recut, const World& from, const World::Distribution& old_holders,
                 const World& to, const World::Distribution& new_holders, std::int64_t element);

}  // namespace swell::runtime
