// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace swell::runtime {

/// Purpose of a tensor of the training state.
enum class Kind : std::uint8_t { parameter, gradient, moment, step, scheduler, rng, data_position };
/// Number of values of Kind: a number from outside must be below it.
inline constexpr int kKinds = 7;
const char* to_text(Kind kind) noexcept;

/// Element formats. Values are moved as they are, never converted: only the size matters.
enum class DType : std::uint8_t { u8, f8, f16, bf16, i32, f32, i64, f64 };
inline constexpr int kDTypes = 8;
std::int64_t bytes_of(DType dtype) noexcept;

/// Limits of the number of dimensions, of a tensor's elements, and of the bytes of a name. Data
/// from a program or another node is checked against them, so that no later product overflows.
inline constexpr int kMaxDims = 8;
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 50;
inline constexpr std::size_t kMaxName = 512;

/// Elements in each dimension; a scalar is {1}.
using Shape = std::vector<std::int64_t>;
/// Returns the number of elements of `shape`. Returns an error, which names the dimension, unless
/// the shape has 1 to kMaxDims dimensions of at least 1 element, and at most kMaxElements in all.
Result<std::int64_t> element_count(const Shape& shape);

/// The part of a tensor that one rank holds in one piece of memory: the elements from `flat_begin`
/// to `flat_end` of the block [begin, end), in row-major order. The flat range may extend past the
/// block's last element; what lies past it is padding, without values. This covers a TP shard (a
/// whole block), a replica, a ZeRO or FSDP shard of a TP shard (a range of the block), and padding
/// to a multiple of the number of ranks.
struct Part {
  Shape begin, end;
  std::int64_t flat_begin = 0;
  std::int64_t flat_end = 0;

  static Part whole(const Shape& shape);
  /// Makes a part that is a whole block.
  static Part block(Shape begin, Shape end);
  /// Makes a part that is the range from `from` to `to` of a block, in elements of the block.
  static Part range(Shape begin, Shape end, std::int64_t from, std::int64_t to);

  /// Returns the number of elements of the block.
  std::int64_t block_elements() const noexcept;
  /// Returns the number of elements in memory, padding included.
  std::int64_t elements() const noexcept { return flat_end - flat_begin; }
  friend auto operator<=>(const Part&, const Part&) = default;
};

struct PartHash {
  std::size_t operator()(const Part& part) const noexcept;
};

/// Checks that `part` is a part of a tensor of this shape: it is inside the shape and has at least
/// 1 element in each dimension, its flat range begins in the block, and its padding is not longer
/// than the block. The error names dimension and value.
Result<void> check(const Part& part, const Shape& shape);

/// Description of a tensor, equal on all ranks.
struct TensorInfo {
  std::string name;
  int layer = -1;  ///< layer of the model; -1: none
  Kind kind = Kind::parameter;
  DType dtype = DType::f32;
  Shape shape;
  /// Whether the program can initialize it if no rank of the old plan has it, such as the RNG of a
  /// new coordinate.
  bool optional = false;
  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

}  // namespace swell::runtime
