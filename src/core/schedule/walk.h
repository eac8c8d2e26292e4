// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <fmt/format.h>
#include <vector>

#include "core/schedule/schedule.h"

namespace swell::schedule {

/// Calls visit(stage, index) for each operation of `schedule`, after all operations that it needs.
/// Returns an error that names a stage if it waits forever. REQUIRES: each order has each pass
/// once, micro-batches rising.
template <typename Visit>
Result<void> walk(const Schedule& schedule, const Visit& visit) {
  const Shape& shape = schedule.shape;
  const std::size_t stages = schedule.orders.size();
  const std::size_t chunks = static_cast<std::size_t>(shape.chunks);
  // Micro-batches rise, so a count by kind, stage and chunk tells which passes are done.
  std::vector<int> done(kKinds * stages * chunks, 0);
  const auto count = [&](Kind kind, int stage, int chunk) -> int& {
    return done[(static_cast<std::size_t>(stage) * chunks + static_cast<std::size_t>(chunk)) *
                    kKinds +
                static_cast<std::size_t>(kind)];
  };
  std::vector<std::size_t> at(stages, 0);
  std::vector<int> queue;  // stages that may continue
  std::vector<char> queued(stages, 1);
  for (std::size_t i = stages; i-- > 0;) queue.push_back(static_cast<int>(i));
  std::size_t left = 0;
  for (const Order& order : schedule.orders) left += order.size();
  while (!queue.empty()) {
    const int stage = queue.back();
    const std::size_t s = static_cast<std::size_t>(stage);
    queue.pop_back();
    queued[s] = 0;
    const Order& order = schedule.orders[s];
    const std::size_t begin = at[s];
    for (; at[s] < order.size(); ++at[s]) {
      const Operation& one = order[at[s]];
      const Need need = need_of(shape, stage, one);
      if (need.any && count(need.operation.kind, need.stage, need.operation.chunk) <=
                          need.operation.micro_batch)
        break;
      visit(stage, at[s]);
      ++count(one.kind, stage, one.chunk);
      --left;
    }
    if (at[s] == begin) continue;
    for (const std::size_t other : {s + 1 == stages ? 0 : s + 1, s == 0 ? stages - 1 : s - 1})
      if (!queued[other]) {
        queued[other] = 1;
        queue.push_back(static_cast<int>(other));
      }
  }
  if (left == 0) return {};
  std::size_t s = 0;
  while (at[s] == schedule.orders[s].size()) ++s;
  const Operation& one = schedule.orders[s][at[s]];
  const Need need = need_of(shape, static_cast<int>(s), one);
  return Error(
      fmt::format("the schedule deadlocks: stage {} waits at its operation {}, {}, for {} "
                  "on stage {}, which never comes; move that operation forward",
                  s, at[s], to_string(one), to_string(need.operation), need.stage));
}

}  // namespace swell::schedule
