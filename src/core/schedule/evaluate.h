// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <vector>

#include "core/schedule/graph.h"

namespace swell::schedule {

/// Cost of the passes of one chunk on one stage, for one micro-batch. If the schedule has no
/// separate weight passes, a backward pass costs the sum of `backward` and `weights`.
struct ChunkCost {
  /// By Kind.
  std::array<double, kKinds> seconds{};
  /// By Kind: memory change in bytes (FlexTrain, D_n); forward passes add, the others free.
  std::array<double, kKinds> bytes{};
  /// Seconds until the next chunk has this chunk's activations, and until the previous chunk has
  /// its gradients.
  double send_forward_s = 0, send_backward_s = 0;
};

/// Costs of all nodes of a graph.
struct Costs {
  Shape shape;
  std::vector<ChunkCost> chunks;     ///< by stage * shape.chunks + chunk
  std::vector<double> static_bytes;  ///< by stage: weights and optimizer; empty: 0
  /// By stage: time after its last pass, for the reduction of gradients and the optimizer; empty:
  /// 0.
  std::vector<double> finish_s;

  /// Returns costs that are the same for each chunk of each stage.
  static Costs uniform(const Shape& shape, const ChunkCost& cost);
  ChunkCost& at(int stage, int chunk) noexcept;
  const ChunkCost& at(int stage, int chunk) const noexcept;
  /// Returns an error unless there is a cost for each node of `of`, all are finite, and times are
  /// not negative. The number of micro-batches does not matter.
  Result<void> check(const Shape& of) const;
};

/// One iteration, as predicted.
struct Evaluation {
  double seconds = 0;                  ///< eq. 7, with finish_s
  std::vector<double> end_s;           ///< by node
  std::vector<double> stage_end_s;     ///< T_i of eq. 8, with finish_s
  std::vector<double> bytes;           ///< by node: memory of its stage after it (eq. 11)
  std::vector<double> peak_bytes;      ///< by stage, eq. 9
  std::vector<std::int32_t> critical;  ///< nodes of a longest path, first to last
};

/// Predicts one iteration. A node ends at the later of the end of the node before it on its stage
/// and the end of all nodes that it depends on, plus its own time (FlexTrain, eqs. 7 to 9 and 11;
/// eq. 8 with a misprint corrected). REQUIRES: costs.check(graph.shape()).
Evaluation evaluate(const Graph& graph, const Costs& costs);

}  // namespace swell::schedule
