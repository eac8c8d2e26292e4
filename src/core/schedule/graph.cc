// SPDX-License-Identifier: BSD-3-Clause
#include "core/schedule/graph.h"

#include "core/schedule/walk.h"

namespace swell::schedule {

Result<Graph> Graph::of(const Schedule& schedule) {
  if (const auto valid = check_orders(schedule); !valid) return valid.error();
  return of_orders(schedule);
}

Result<Graph> Graph::of_orders(const Schedule& schedule) {
  Graph graph;
  graph.shape_ = schedule.shape;
  graph.splits_ = schedule.splits_weights();
  const Shape& shape = graph.shape_;
  const std::size_t stages = schedule.orders.size(),
                    chunks = static_cast<std::size_t>(shape.chunks),
                    micro_batches = static_cast<std::size_t>(shape.micro_batches);
  std::size_t passes = 0;
  for (const Order& order : schedule.orders) passes += order.size();
  graph.nodes_.reserve(passes + 4 * stages * chunks * micro_batches);
  // The message of each forward and backward pass so far.
  std::vector<std::int32_t> message(2 * stages * chunks * micro_batches, -1);
  const auto message_for = [&](int stage, const Operation& to) -> std::int32_t& {
    return message
        [((static_cast<std::size_t>(stage) * chunks + static_cast<std::size_t>(to.chunk)) * 2 +
          static_cast<std::size_t>(to.kind)) *
             micro_batches +
         static_cast<std::size_t>(to.micro_batch)];
  };
  std::vector<std::int32_t> last(stages, -1);
  const auto add = [&](NodeKind kind, int stage, const Operation& one, std::int32_t previous,
                       std::int32_t needs) {
    graph.nodes_.push_back(
        {kind, static_cast<std::int16_t>(stage), one.chunk, one.micro_batch, previous, needs});
    return static_cast<std::int32_t>(graph.nodes_.size()) - 1;
  };
  const auto walked = walk(schedule, [&](int stage, std::size_t index) {
    const std::size_t s = static_cast<std::size_t>(stage);
    const Operation& one = schedule.orders[s][index];
    last[s] = add(static_cast<NodeKind>(one.kind), stage, one, last[s],
                  one.kind == Kind::weights ? -1 : message_for(stage, one));
    if (one.kind == Kind::weights || shape.stages == 1) return;
    // Forward passes send to the chunk behind, backward passes to the chunk in front.
    const bool forward = one.kind == Kind::forward;
    int to = stage + (forward ? 1 : -1);
    Operation its = one;
    if (to < 0 || to == shape.stages) {
      its.chunk = static_cast<std::int16_t>(one.chunk + (forward ? 1 : -1));
      if (its.chunk < 0 || its.chunk == shape.chunks) return;
      to = forward ? 0 : shape.stages - 1;
    }
    const std::int32_t sent =
        add(forward ? NodeKind::send_forward : NodeKind::send_backward, stage, one, -1, last[s]);
    message_for(to, its) =
        add(forward ? NodeKind::receive_forward : NodeKind::receive_backward, to, its, -1, sent);
  });
  if (!walked) return walked.error();
  return graph;
}

}  // namespace swell::schedule
