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

/// Returns F, B or W.
char letter_of(Kind kind) noexcept;

/// One pass of a stage. Its messages follow from the shape.
struct Operation {
  Kind kind = Kind::forward;
  std::int16_t chunk = 0;
  std::int32_t micro_batch = 0;
  friend bool operator==(const Operation&, const Operation&) = default;
};

/// Returns "F of chunk 1, micro-batch 5".
std::string to_string(const Operation& operation);

/// Passes of one stage, first to last.
using Order = std::vector<Operation>;

/// The shape of the pipeline that runs a schedule. Chunk c of stage s comes before chunk c of stage
/// s + 1; chunk c + 1 of stage 0 comes after chunk c of the last stage.
struct Shape {
  int stages = 1;
  int chunks = 1;  ///< chunks of each stage (virtual stages)
  int micro_batches = 1;
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// Maximum shape: schedules are also read from users' files.
inline constexpr int kMaxStages = 1024;
inline constexpr int kMaxChunks = 1024;
inline constexpr int kMaxMicroBatches = 1 << 16;
inline constexpr long kMaxOperations = 2L << 20;

/// A pipeline schedule: the order of passes for each stage. Micro-batches of one kind and chunk are
/// in rising order, so that gradients are summed in the same order under every schedule.
struct Schedule {
  Shape shape;
  std::vector<Order> orders;  ///< by stage
  /// Returns whether weight gradients are separate passes.
  bool splits_weights() const noexcept;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// Returns an error unless schedules may have this shape.
Result<void> check_shape(const Shape& shape);

/// Returns an error unless each stage has each pass once, micro-batches rise, B comes after its F
/// and W after its B, and no stage waits forever. The error names the stage, the operation, and the
/// missing or awaited pass.
Result<void> check(const Schedule& schedule);

/// Checks each order by itself: everything in check() except that no stage waits forever.
Result<void> check_orders(const Schedule& schedule);

/// Does the same as check(), and checks that the schedule is for `shape`.
Result<void> check(const Schedule& schedule, const Shape& shape);

/// The pass of another stage or chunk that `operation` of `stage` needs. F needs the activations of
/// the chunk in front, B the gradients of the chunk behind.
struct Need {
  bool any = false;  ///< false: only needs results of its own chunk
  int stage = 0;
  Operation operation;
};
Need need_of(const Shape& shape, int stage, const Operation& operation) noexcept;

}  // namespace swell::schedule
