// SPDX-License-Identifier: BSD-3-Clause
#include "core/schedule/schedule.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/count_of.h"
#include "core/schedule/walk.h"

namespace swell::schedule {

namespace {

/// Returns an error for the first rule that the order of one stage breaks.
Result<void> check_order(const Shape& shape, int stage, const Order& order, bool splits) {
  const std::size_t chunks = static_cast<std::size_t>(shape.chunks);
  std::vector<int> next(kKinds * chunks, 0);  // micro-batch of the next pass, by kind and chunk
  const auto made = [&](Kind kind, int chunk) -> int& {
    return next[static_cast<std::size_t>(kind) * chunks + static_cast<std::size_t>(chunk)];
  };
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Operation& one = order[i];
    if (one.chunk < 0 || one.chunk >= shape.chunks || one.micro_batch < 0 ||
        one.micro_batch >= shape.micro_batches || one.kind > Kind::weights)
      return Error(fmt::format("stage {}: {} is not a pass of {} and {}", stage, to_string(one),
                               count_of(shape.chunks, "chunk"),
                               count_of(shape.micro_batches, "micro-batch")));
    int& due = made(one.kind, one.chunk);
    if (one.micro_batch < due)
      return Error(fmt::format("stage {}: the order repeats {}; each pass is made once", stage,
                               to_string(one)));
    if (one.micro_batch > due) {
      Operation skipped = one;
      skipped.micro_batch = due;
      const bool later = std::find(order.begin() + static_cast<std::ptrdiff_t>(i), order.end(),
                                   skipped) != order.end();
      if (!later)
        return Error(fmt::format("stage {}: the order lacks {}; each pass is made once", stage,
                                 to_string(skipped)));
      return Error(
          fmt::format("stage {}: {} stands before micro-batch {}; the micro-batches of a "
                      "chunk must rise",
                      stage, to_string(one), due));
    }
    if (one.kind != Kind::forward) {
      const Kind first = one.kind == Kind::backward ? Kind::forward : Kind::backward;
      if (made(first, one.chunk) <= one.micro_batch)
        return Error(fmt::format("stage {}: {} stands before its {}; put it behind", stage,
                                 to_string(one), letter_of(first)));
    }
    ++due;
  }
  for (int kind = 0; kind < (splits ? 3 : 2); ++kind)
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      const int due = made(static_cast<Kind>(kind), chunk);
      if (due == shape.micro_batches) continue;
      return Error(
          fmt::format("stage {}: the order lacks {}; each pass is made once{}", stage,
                      to_string({static_cast<Kind>(kind), static_cast<std::int16_t>(chunk), due}),
                      kind == 2 ? ", and W by all stages or by none" : ""));
    }
  return {};
}

}  // namespace

char letter_of(Kind kind) noexcept {
  return kind == Kind::forward ? 'F' : kind == Kind::backward ? 'B' : 'W';
}

std::string to_string(const Operation& operation) {
  return fmt::format("{} of chunk {}, micro-batch {}", letter_of(operation.kind), operation.chunk,
                     operation.micro_batch);
}

bool Schedule::splits_weights() const noexcept {
  return std::any_of(orders.begin(), orders.end(), [](const Order& order) {
    return std::any_of(order.begin(), order.end(),
                       [](const Operation& one) { return one.kind == Kind::weights; });
  });
}

Result<void> check_shape(const Shape& shape) {
  if (shape.stages < 1 || shape.stages > kMaxStages)
    return Error(fmt::format("a schedule of {}; 1 to {} are possible",
                             count_of(shape.stages, "stage"), kMaxStages));
  if (shape.chunks < 1 || shape.chunks > kMaxChunks)
    return Error(fmt::format("a schedule of {} a stage; 1 to {} are possible",
                             count_of(shape.chunks, "chunk"), kMaxChunks));
  if (shape.micro_batches < 1 || shape.micro_batches > kMaxMicroBatches)
    return Error(fmt::format("a schedule of {}; 1 to {} are possible",
                             count_of(shape.micro_batches, "micro-batch"), kMaxMicroBatches));
  const long operations = long{kKinds} * shape.stages * shape.chunks * shape.micro_batches;
  if (operations > kMaxOperations)
    return Error(fmt::format(
        "{} of {} and {} make {}; at most {} are possible, so use fewer chunks or micro-batches",
        count_of(shape.stages, "stage"), count_of(shape.chunks, "chunk"),
        count_of(shape.micro_batches, "micro-batch"), count_of(operations, "operation"),
        kMaxOperations));
  return {};
}

Result<void> check_orders(const Schedule& schedule) {
  const Shape& shape = schedule.shape;
  if (const auto valid = check_shape(shape); !valid) return valid;
  if (schedule.orders.size() != static_cast<std::size_t>(shape.stages))
    return Error(
        fmt::format("the schedule has the orders of {}, and is for {}; give each stage one",
                    count_of(schedule.orders.size(), "stage"), shape.stages));
  const bool splits = schedule.splits_weights();
  for (int stage = 0; stage < shape.stages; ++stage)
    if (const auto valid =
            check_order(shape, stage, schedule.orders[static_cast<std::size_t>(stage)], splits);
        !valid)
      return valid;
  return {};
}

Result<void> check(const Schedule& schedule) {
  if (const auto valid = check_orders(schedule); !valid) return valid;
  return walk(schedule, [](int, std::size_t) {});
}

Result<void> check(const Schedule& schedule, const Shape& shape) {
  const Shape& own = schedule.shape;
  if (own != shape)
    return Error(fmt::format(
        "the schedule is for {} of {} and {}, the plan has {} of {} and {}; use a schedule of this plan",
        count_of(own.stages, "stage"), count_of(own.chunks, "chunk"),
        count_of(own.micro_batches, "micro-batch"), shape.stages, shape.chunks,
        shape.micro_batches));
  return check(schedule);
}

Need need_of(const Shape& shape, int stage, const Operation& operation) noexcept {
  if (operation.kind == Kind::weights) return {};
  const bool forward = operation.kind == Kind::forward;
  const int step = forward ? -1 : 1;
  Need need{true, stage + step, operation};
  if (need.stage >= 0 && need.stage < shape.stages) return need;
  need.operation.chunk = static_cast<std::int16_t>(operation.chunk + step);
  need.stage = forward ? shape.stages - 1 : 0;
  need.any = need.operation.chunk >= 0 && need.operation.chunk < shape.chunks;
  return need;
}

}  // namespace swell::schedule
