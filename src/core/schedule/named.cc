// SPDX-License-Identifier: BSD-3-Clause
#include "core/schedule/named.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/schedule/list_schedule.h"

namespace swell::schedule {

namespace {

Operation pass(Kind kind, int chunk, int micro_batch) {
  return {kind, static_cast<std::int16_t>(chunk), micro_batch};
}

struct Named {
  std::string_view name;
  Schedule (*make)(const Shape&);
  bool one_chunk;
};

constexpr Named kNamed[] = {{"gpipe", gpipe, false},
                            {"1f1b", one_forward_one_backward, true},
                            {"interleaved", interleaved, false},
                            {"zero-bubble", zero_bubble, false},
                            {"memory-minimised", memory_minimised, false}};

/// Splits the micro-batches into equal groups, each with at least as many as there are stages.
std::vector<int> equal_groups(const Shape& shape) {
  const int count = std::max(1, shape.micro_batches / shape.stages);
  std::vector<int> sizes;
  for (int i = 0; i < count; ++i)
    sizes.push_back(shape.micro_batches / count + (i < shape.micro_batches % count ? 1 : 0));
  return sizes;
}

}  // namespace

Schedule gpipe(const Shape& shape) {
  Order order;
  for (int chunk = 0; chunk < shape.chunks; ++chunk)
    for (int m = 0; m < shape.micro_batches; ++m) order.push_back(pass(Kind::forward, chunk, m));
  for (int chunk = shape.chunks; chunk-- > 0;)
    for (int m = 0; m < shape.micro_batches; ++m) order.push_back(pass(Kind::backward, chunk, m));
  return {shape, std::vector<Order>(static_cast<std::size_t>(shape.stages), order)};
}

Schedule one_forward_one_backward(const Shape& shape) {
  Schedule schedule{shape, {}};
  for (int stage = 0; stage < shape.stages; ++stage) {
    Order& order = schedule.orders.emplace_back();
    const int ahead = std::min(shape.stages - stage - 1, shape.micro_batches);
    int forward = 0, backward = 0;
    while (forward < ahead) order.push_back(pass(Kind::forward, 0, forward++));
    while (backward < shape.micro_batches) {
      if (forward < shape.micro_batches) order.push_back(pass(Kind::forward, 0, forward++));
      order.push_back(pass(Kind::backward, 0, backward++));
    }
  }
  return schedule;
}

Schedule interleaved_in_groups(const Shape& shape, const std::vector<int>& sizes, int ahead) {
  Order forward, backward;
  int first = 0;
  for (const int size : sizes) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk)
      for (int m = first; m < first + size; ++m) forward.push_back(pass(Kind::forward, chunk, m));
    for (int chunk = shape.chunks; chunk-- > 0;)
      for (int m = first; m < first + size; ++m) backward.push_back(pass(Kind::backward, chunk, m));
    first += size;
  }
  Schedule schedule{shape, {}};
  for (int stage = 0; stage < shape.stages; ++stage) {
    Order& order = schedule.orders.emplace_back();
    const std::size_t before = static_cast<std::size_t>(std::clamp(
        ahead - 2 * stage, (shape.chunks - 1) * sizes.front(), static_cast<int>(forward.size())));
    order.assign(forward.begin(), forward.begin() + static_cast<std::ptrdiff_t>(before));
    std::size_t next = before;
    for (const Operation& one : backward) {
      if (next < forward.size()) order.push_back(forward[next++]);
      order.push_back(one);
    }
  }
  return schedule;
}

Schedule interleaved(const Shape& shape) {
  if (shape.chunks == 1) return one_forward_one_backward(shape);
  const std::vector<int> sizes = equal_groups(shape);
  return interleaved_in_groups(shape, sizes,
                               2 * (shape.stages - 1) + (shape.chunks - 1) * sizes.front());
}

Schedule zero_bubble(const Shape& shape) {
  const Schedule base = interleaved(shape);
  // Each pass takes one unit of time, and a weight gradient frees the activations of its forward
  // pass.
  ChunkCost unit;
  unit.seconds = {1, 1, 1};
  unit.bytes = {1, 0, -1};
  const Costs costs = Costs::uniform(shape, unit);
  double kept = 0, peak = 0;
  for (const Operation& one : base.orders.front()) {
    kept += one.kind == Kind::forward ? 1 : -1;
    peak = std::max(peak, kept);
  }
  ListRules rules;
  rules.splits_weights = true;
  rules.keeps_order = true;
  rules.limit_bytes.assign(static_cast<std::size_t>(shape.stages), peak);
  // Cannot fail: the limit is at least the activations that interleaved() keeps on any stage.
  return list_schedule(base, costs, rules).value();
}

Schedule memory_minimised(const Shape& shape) {
  Order order;
  for (int m = 0; m < shape.micro_batches; ++m) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk)
      order.push_back(pass(Kind::forward, chunk, m));
    for (int chunk = shape.chunks; chunk-- > 0;) order.push_back(pass(Kind::backward, chunk, m));
  }
  return {shape, std::vector<Order>(static_cast<std::size_t>(shape.stages), order)};
}

const std::vector<std::string_view>& names() {
  static const std::vector<std::string_view> all = [] {
    std::vector<std::string_view> list;
    for (const Named& one : kNamed) list.push_back(one.name);
    return list;
  }();
  return all;
}

Result<Schedule> named(std::string_view name, const Shape& shape) {
  if (const auto valid = check_shape(shape); !valid) return valid.error();
  for (const Named& one : kNamed) {
    if (one.name != name) continue;
    if (one.one_chunk && shape.chunks != 1)
      return Error(fmt::format("{} runs one chunk on each stage, the plan has {}; use interleaved",
                               name, shape.chunks));
    return one.make(shape);
  }
  return Error(fmt::format("no schedule is called \"{}\"; use {}", name, fmt::join(names(), ", ")));
}

}  // namespace swell::schedule
