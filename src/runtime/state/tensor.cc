// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/state/tensor.h"

#include <fmt/format.h>
#include <iterator>
#include <xxhash.h>

namespace swell::runtime {

const char* to_text(Kind kind) noexcept {
  static constexpr const char* names[] = {"parameter", "gradient", "moment",       "step",
                                          "scheduler", "rng",      "data position"};
  return names[static_cast<int>(kind)];
}

std::int64_t bytes_of(DType dtype) noexcept {
  static constexpr std::int64_t sizes[] = {1, 1, 2, 2, 4, 4, 8, 8};
  return sizes[static_cast<int>(dtype)];
}

Result<std::int64_t> element_count(const Shape& shape) {
  if (shape.empty() || shape.size() > kMaxDims)
    return Error(
        fmt::format("a shape of {} dimensions; 1 to {} are possible, and a scalar is of shape 1",
                    shape.size(), kMaxDims));
  std::int64_t count = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 1)
      return Error(
          fmt::format("dimension {} has {} elements; it must have 1 or more", d, shape[d]));
    if (shape[d] > kMaxElements / count)
      return Error(fmt::format("dimension {} makes more than 2^50 elements in all", d));
    count *= shape[d];
  }
  return count;
}

std::int64_t Part::block_elements() const noexcept {
  std::int64_t count = 1;
  for (std::size_t d = 0; d < begin.size(); ++d) count *= end[d] - begin[d];
  return count;
}

Part Part::whole(const Shape& shape) { return block(Shape(shape.size(), 0), shape); }

Part Part::block(Shape begin, Shape end) {
  Part part{std::move(begin), std::move(end), 0, 0};
  part.flat_end = part.block_elements();
  return part;
}

Part Part::range(Shape begin, Shape end, std::int64_t from, std::int64_t to) {
  return {std::move(begin), std::move(end), from, to};
}

std::size_t PartHash::operator()(const Part& part) const noexcept {
  const std::int64_t range[] = {part.flat_begin, part.flat_end};
  const auto add = [](const auto& numbers, XXH64_hash_t seed) {
    return XXH3_64bits_withSeed(std::data(numbers), std::size(numbers) * sizeof numbers[0], seed);
  };
  return add(range, add(part.begin, add(part.end, 0)));
}

Result<void> check(const Part& part, const Shape& shape) {
  if (part.begin.size() != shape.size() || part.end.size() != shape.size())
    return Error(fmt::format("a part of {} to {} dimensions; the tensor has {}", part.begin.size(),
                             part.end.size(), shape.size()));
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (part.begin[d] < 0 || part.begin[d] >= part.end[d] || part.end[d] > shape[d])
      return Error(fmt::format(
          "dimension {}: the part goes from {} to {}; it must be within 0 to {} and not empty", d,
          part.begin[d], part.end[d], shape[d]));
  const std::int64_t block = part.block_elements();
  if (part.flat_begin < 0 || part.flat_begin >= part.flat_end)
    return Error(fmt::format(
        "the flat range goes from {} to {}; it must begin at 0 or later and not be empty",
        part.flat_begin, part.flat_end));
  if (part.flat_begin > 2 * block || part.flat_end > 2 * block)
    return Error(fmt::format(
        "the flat range goes from {} to {}; with padding it may reach twice its block's {} elements",
        part.flat_begin, part.flat_end, block));
  return {};
}

}  // namespace swell::runtime
