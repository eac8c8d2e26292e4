// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace swell::runtime {

/// What a tensor of the training state is for.
enum class Kind : std::uint8_t { parameter, gradient, moment, step, scheduler, rng, data_position };
/// How many values of Kind there are: a number from outside must be below it.
inline constexpr int kKinds = 7;
const char* to_text(Kind kind) noexcept;

/// Element formats. Values are moved as they are, never converted: only the size matters.
enum class DType : std::uint8_t { u8, f8, f16, bf16, i32, f32, i64, f64 };
inline constexpr int kDTypes = 8;
std::int64_t bytes_of(DType dtype) noexcept;

/// At most this many dimensions, elements a tensor, and bytes a name: what a program or another
/// node sends is checked against them, so that no later product overflows.
inline constexpr int kMaxDims = 8;
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 50;
inline constexpr std::size_t kMaxName = 512;

/// Elements in each dimension; a scalar is {1}.
using Shape = std::vector<std::int64_t>;
/// 1 to kMaxDims dimensions of 1 element or more, kMaxElements in all. The error names the
/// dimension.
Result<std::int64_t> element_count(const Shape& shape);

/// The part of a tensor that one rank holds in one piece of memory: of the block [begin, end) in
/// each dimension, in row-major order, the elements from `flat_begin` to `flat_end`. A flat range
/// may pass the block's last element: what is past it is padding, without a value. That says a TP
/// shard (a block, wholly), a replica, a ZeRO or FSDP shard of a TP shard (a range of the block),
/// and padding up to a multiple of the ranks.
struct Part {
  Shape begin, end;
  std::int64_t flat_begin = 0;
  std::int64_t flat_end = 0;

  static Part whole(const Shape& shape);
  /// All of the block.
  static Part block(Shape begin, Shape end);
  /// The range of the block, in its elements.
  static Part range(Shape begin, Shape end, std::int64_t from, std::int64_t to);

  /// Elements of the block.
  std::int64_t block_elements() const noexcept;
  /// Elements of memory, padding included.
  std::int64_t elements() const noexcept { return flat_end - flat_begin; }
  friend auto operator<=>(const Part&, const Part&) = default;
};

/// Whether `part` is of a tensor of this shape: inside it in each dimension, of 1 element or more,
/// its flat range beginning in the block, and its padding no longer than the block. The error names
/// dimension and value.
Result<void> check(const Part& part, const Shape& shape);

/// A tensor as all ranks know it.
struct TensorInfo {
  std::string name;
  int layer = -1;  ///< of the model; -1: of none
  Kind kind = Kind::parameter;
  DType dtype = DType::f32;
  Shape shape;
  /// The program can make it itself where no rank of the old plan has it: the RNG of a coordinate
  /// that is new.
  bool optional = false;
  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

}  // namespace swell::runtime
