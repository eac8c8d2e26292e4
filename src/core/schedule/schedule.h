// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace swell::schedule {

/// A pass of one micro-batch through one chunk: forward, backward for the gradients of the inputs,
/// and backward for the gradients of the weights. In a schedule without `weights` passes,
/// `backward` is the whole backward pass.
enum class Kind : std::uint8_t { forward, backward, weights };
inline constexpr int kKinds = 3;

/// F, B or W.
char letter_of(Kind kind) noexcept;

/// One pass of a stage. Its messages follow from the shape.
struct Operation {
  Kind kind = Kind::forward;
  std::int16_t chunk = 0;
  std::int32_t micro_batch = 0;
  friend bool operator==(const Operation&, const Operation&) = default;
};

/// "F of chunk 1, micro-batch 5".
std::string to_string(const Operation& operation);

/// Passes of one stage, first to last.
using Order = std::vector<Operation>;

/// The pipeline that a schedule is for. Chunk c of stage s stands before chunk c of stage s + 1;
/// chunk c + 1 of stage 0 stands behind chunk c of the last stage.
struct Shape {
  int stages = 1;
  int chunks = 1;  ///< of each stage: virtual stages
  int micro_batches = 1;
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// Largest shape: schedules are also read from users' files.
inline constexpr int kMaxStages = 1024;
inline constexpr int kMaxChunks = 1024;
inline constexpr int kMaxMicroBatches = 1 << 16;
inline constexpr long kMaxOperations = 2L << 20;

/// A pipeline schedule: for each stage the order of its passes. The micro-batches of one kind and
/// chunk rise, so that sums of gradients keep one order under every schedule.
struct Schedule {
  Shape shape;
  std::vector<Order> orders;  ///< by stage
  /// Whether weight gradients are passes of their own.
  bool splits_weights() const noexcept;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// Whether `shape` is one that schedules may have.
Result<void> check_shape(const Shape& shape);

/// Whether each stage has each pass once, micro-batches rising, B after its F and W after its B,
/// and no stage waits for ever. The error names the stage, the operation and what it lacks or waits
/// for.
Result<void> check(const Schedule& schedule);

/// Checks each order by itself, as check() does: all but that no stage waits for ever.
Result<void> check_orders(const Schedule& schedule);

/// The same as check(), and that the schedule is for `shape`.
Result<void> check(const Schedule& schedule, const Shape& shape);

/// The pass of another stage, or of another chunk, that `operation` of `stage` needs. F needs the
/// activations of the chunk in front, B the gradients of the chunk behind.
struct Need {
  bool any = false;  ///< false: nothing but what this chunk has made itself
  int stage = 0;
  Operation operation;
};
Need need_of(const Shape& shape, int stage, const Operation& operation) noexcept;

}  // namespace swell::schedule
