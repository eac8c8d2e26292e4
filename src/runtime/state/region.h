// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "runtime/state/tensor.h"

namespace swell::runtime {

/// A block of a tensor, in the tensor's own coordinates: [begin, end) in each of `dims` dimensions.
struct Box {
  int dims = 0;
  std::array<std::int64_t, kMaxDims> begin{}, end{};

  std::int64_t elements() const noexcept {
    std::int64_t count = 1;
    for (int d = 0; d < dims; ++d)
      count *= end[static_cast<std::size_t>(d)] - begin[static_cast<std::size_t>(d)];
    return count;
  }
  friend bool operator==(const Box&, const Box&) = default;
};

/// Returns the elements of `part` that have values, as blocks that do not overlap: one for a block,
/// at most 2 * dims - 1 for a flat range, none if the part is all padding.
std::vector<Box> boxes_of(const Part& part);
Box box_of(const Shape& begin, const Shape& end);

/// Returns the common block of two blocks of one tensor, or nothing if they share no element.
std::optional<Box> common(const Box& a, const Box& b) noexcept;
/// Appends the elements of `a` outside of `b` to `rest`, in at most 2 * dims blocks.
void subtract(const Box& a, const Box& b, std::vector<Box>& rest);

/// Returns the offset of an element in a part's memory, in elements. REQUIRES: the part holds it.
std::int64_t offset_in(const Part& part, const std::array<std::int64_t, kMaxDims>& at) noexcept;

/// Calls each(offset in a, offset in b, count) for the runs of elements of `box` that are
/// contiguous in both parts' memory, in rising order of both. REQUIRES: both parts hold all of
/// `box`.
template <typename Each>
void each_run(const Box& box, const Part& a, const Part& b, Each&& each) {
  // Both blocks are complete in dimension `inner` and all later ones, so one run crosses these
  // dimensions.
  int inner = box.dims - 1;
  std::int64_t run = 1;
  for (int d = box.dims - 1; d >= 0; --d) {
    const auto i = static_cast<std::size_t>(d);
    inner = d;
    run *= box.end[i] - box.begin[i];
    const bool whole = box.begin[i] == a.begin[i] && box.end[i] == a.end[i] &&
                       box.begin[i] == b.begin[i] && box.end[i] == b.end[i];
    if (!whole) break;
  }
  std::array<std::int64_t, kMaxDims> at = box.begin;
  for (;;) {
    each(offset_in(a, at), offset_in(b, at), run);
    int d = inner - 1;
    for (; d >= 0; --d) {
      const auto i = static_cast<std::size_t>(d);
      if (++at[i] < box.end[i]) break;
      at[i] = box.begin[i];
    }
    if (d < 0) return;
  }
}

}  // namespace swell::runtime
