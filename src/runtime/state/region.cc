// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/state/region.h"

namespace swell::runtime {

Box box_of(const Shape& begin, const Shape& end) {
  Box box;
  box.dims = static_cast<int>(begin.size());
  std::copy(begin.begin(), begin.end(), box.begin.begin());
  std::copy(end.begin(), end.end(), box.end.begin());
  return box;
}

std::vector<Box> boxes_of(const Part& part) {
  const Box block = box_of(part.begin, part.end);
  const std::int64_t count = block.elements();
  std::int64_t from = part.flat_begin;
  const std::int64_t to = std::min(part.flat_end, count);
  if (from == 0 && to == count) return {block};
  std::vector<Box> boxes;
  // Number of elements that one step in dimension d passes.
  std::array<std::int64_t, kMaxDims> step{};
  std::int64_t below = 1;
  for (int d = block.dims - 1; d >= 0; --d) {
    const auto i = static_cast<std::size_t>(d);
    step[i] = below;
    below *= block.end[i] - block.begin[i];
  }
  while (from < to) {
    // The outermost dimension in which a whole step begins here and fits.
    int d = 0;
    while (from % step[static_cast<std::size_t>(d)] != 0 ||
           step[static_cast<std::size_t>(d)] > to - from)
      ++d;
    Box box = block;
    std::int64_t rest = from;
    for (int outer = 0; outer <= d; ++outer) {
      const auto i = static_cast<std::size_t>(outer);
      const std::int64_t index = rest / step[i];
      rest %= step[i];
      box.begin[i] = block.begin[i] + index;
      const std::int64_t room = block.end[i] - box.begin[i];
      box.end[i] = box.begin[i] + (outer == d ? std::min(room, (to - from) / step[i]) : 1);
    }
    boxes.push_back(box);
    from += box.elements();
  }
  return boxes;
}

std::optional<Box> common(const Box& a, const Box& b) noexcept {
  Box both;
  both.dims = a.dims;
  for (int d = 0; d < a.dims; ++d) {
    const auto i = static_cast<std::size_t>(d);
    both.begin[i] = std::max(a.begin[i], b.begin[i]);
    both.end[i] = std::min(a.end[i], b.end[i]);
    if (both.begin[i] >= both.end[i]) return std::nullopt;
  }
  return both;
}

void subtract(const Box& a, const Box& b, std::vector<Box>& rest) {
  const auto shared = common(a, b);
  if (!shared) {
    rest.push_back(a);
    return;
  }
  Box left = a;
  for (int d = 0; d < a.dims; ++d) {
    const auto i = static_cast<std::size_t>(d);
    for (const bool low : {true, false}) {
      Box slice = left;
      if (low) slice.end[i] = shared->begin[i];
      else slice.begin[i] = shared->end[i];
      if (slice.begin[i] < slice.end[i]) rest.push_back(slice);
    }
    left.begin[i] = shared->begin[i];
    left.end[i] = shared->end[i];
  }
}

std::int64_t offset_in(const Part& part, const std::array<std::int64_t, kMaxDims>& at) noexcept {
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < part.begin.size(); ++d)
    offset = offset * (part.end[d] - part.begin[d]) + (at[d] - part.begin[d]);
  return offset - part.flat_begin;
}

}  // namespace swell::runtime
