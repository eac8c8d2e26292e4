// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/plan/plan.h"

namespace swell::perf {

/// Kind of a measured part of a pass.
enum class NodePass : std::uint8_t {
  forward,
  backward,       ///< without the part in `weights`
  weights,        ///< weight gradients only
  head_forward,   ///< output projection and loss; included in a forward node
  head_backward,  ///< output projection and loss; included in a backward node
};
inline constexpr int kNodePasses = 5;
const char* name_of(NodePass pass) noexcept;

/// One pass of one micro-batch through one chunk: FlexTrain, section 6. A chunk is identified by
/// its layers; chunks without layers, and heads, have first_layer -1.
struct NodeObservation {
  NodePass pass = NodePass::forward;
  std::int32_t first_layer = -1, layers = 0;  ///< range of the model's layers
  double median_s = 0;                        ///< without waiting for other stages
  double spread_s = 0;                        ///< interquartile range over micro-batches and steps
  double bytes = 0;  ///< change of allocated device memory by the pass; 0: not observed
  bool is_of(const NodeObservation& other) const noexcept {
    return pass == other.pass && first_layer == other.first_layer && layers == other.layers;
  }
  friend bool operator==(const NodeObservation&, const NodeObservation&) = default;
};
/// Maximum number of nodes that one rank reports. A program with more nodes reports none.
inline constexpr std::size_t kMaxNodes = 32;

/// Observations of one TP group of a running plan, averaged over a few iterations.
struct GroupObservation {
  int stage = 0;             ///< index into Plan::stages
  int group = 0;             ///< index into Stage::groups
  double fwd_s = 0;          ///< one micro-batch's forward pass, communication included
  double fwd_commu_s = 0;    ///< part of fwd_s in TP all-reduces; 0 without TP
  double bwd_s = 0;          ///< one micro-batch's backward pass, without gradient synchronization
  double optim_s = 0;        ///< optimizer step
  double commu_extra_s = 0;  ///< synchronization after the last backward pass; 0 without DP
  /// Part of fwd_s in output projections and losses; 0 on stages without heads.
  double head_fwd_s = 0;
  double head_bwd_s = 0;  ///< part of bwd_s in output projections and losses
  /// Part of bwd_s in passes that only compute weight gradients; 0: not observed separately.
  double weights_s = 0;
  // Sizes of state that the replicas of a stage shard are unsharded.
  double layer_param_bytes = 0;  ///< gradients of layers and MTP modules on one GPU
  /// Parameters and optimizer state of layers and MTP modules on one GPU.
  double layer_state_bytes = 0;
  /// Gradients of everything else on one GPU (embedding, projection).
  double extra_param_bytes = 0;
  double extra_state_bytes = 0;  ///< parameters and optimizer state of everything else
  double peak_bytes = 0;         ///< maximum allocated memory of one GPU (max_memory_allocated)
  std::vector<NodeObservation> nodes{};  ///< parts of fwd_s and bwd_s; empty: not observed
};

/// Observations of a running job under one plan: Suika, 3.1. Made by the profiler, read by solve().
struct Profile {
  plan::Plan plan;
  std::vector<GroupObservation> groups;
  /// Host seconds to launch one layer's forward pass on an idle device; 0: not observed, so solve()
  /// computes the coefficients of A.2.
  double layer_launch_s = 0;
  double activ_bytes = 0;  ///< size of the tensor between two stages, for one sample
  /// C_np: activations of a layer that TP does not split, in units of activ_bytes (5 for GPT-2 and
  /// Qwen2, 7 for LLaMA2). Required unless the plan has two TP degrees.
  std::optional<double> whole_activations;
  /// Whether the output projection uses the embedding's matrix; otherwise there are two matrices of
  /// one size.
  bool tied_embedding = false;
  /// Shares that are sharded over the replicas, as in Coefficients.
  double sharded_state = 0, sharded_gradients = 0;
  int max_shards = 0;
  double last_activ_p_bytes = 0;  ///< extra activations of one head for one sample (logits)
  /// Whether the program reports chunks, and so can run plans with chunks.
  bool takes_chunks = false;
};

}  // namespace swell::perf
