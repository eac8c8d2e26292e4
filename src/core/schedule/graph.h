// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "core/schedule/schedule.h"

namespace swell::schedule {

/// The work of one node of the graph. The first three are computation, as in Kind.
enum class NodeKind : std::uint8_t {
  forward,
  backward,
  weights,
  send_forward,
  receive_forward,
  send_backward,
  receive_backward
};
inline constexpr int kNodeKinds = 7;
inline bool computes(NodeKind kind) noexcept { return kind <= NodeKind::weights; }

/// One operation of one micro-batch, with its edges. `previous`: the computation before it on its
/// stage. `needs`: for a pass, the message with its input, unless its own stage computed the input;
/// for a send, the pass that computed its data; for a receive, its send. -1: none.
struct Node {
  NodeKind kind = NodeKind::forward;
  std::int16_t stage = 0, chunk = 0;
  std::int32_t micro_batch = 0;
  std::int32_t previous = -1, needs = -1;
};

/// The directed acyclic graph of one iteration under a schedule (FlexTrain, 4.2). Each node comes
/// after all nodes that its edges point to. Covers one pipeline: the data parallel groups of a
/// stage act as one.
class Graph {
 public:
  /// Returns an error if check() rejects the schedule.
  static Result<Graph> of(const Schedule& schedule);
  /// Does the same without checking the orders again, which is faster. REQUIRES:
  /// check_orders(schedule).
  static Result<Graph> of_orders(const Schedule& schedule);
  const Shape& shape() const noexcept { return shape_; }
  /// Returns whether weight gradients are separate nodes.
  bool splits_weights() const noexcept { return splits_; }
  const std::vector<Node>& nodes() const noexcept { return nodes_; }

 private:
  Shape shape_;
  bool splits_ = false;
  std::vector<Node> nodes_;
};

}  // namespace swell::schedule
