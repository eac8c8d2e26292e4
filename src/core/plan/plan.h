// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "core/result.h"

namespace swell::plan {

/// A tensor parallel group, Suika's T_{i,j}: `tp` GPUs of one type on one node that hold one
/// replica of a stage together.
struct TpGroup {
  std::string node;
  std::string gpu_type;
  std::vector<int> gpus;  ///< indexes on the node, rising
  int local_batch = 0;    ///< b_{i,j}: samples of each micro-batch that this group computes
  friend bool operator==(const TpGroup&, const TpGroup&) = default;
};

/// A pipeline stage, Suika's D_i: data parallel TP groups of one degree.
struct Stage {
  int layers = 0;  ///< l_i
  int tp = 1;      ///< TP_i
  std::vector<TpGroup> groups;
  int dp() const noexcept { return static_cast<int>(groups.size()); }
  friend bool operator==(const Stage&, const Stage&) = default;
};

/// A PP-DP-TP plan over concrete GPUs, possibly asymmetric (Suika, appendix A.1). Made by the
/// planner or read from JSON; read by the runtime, the launcher and the judge. It names nodes
/// and types, so that it means the same to every program.
struct Plan {
  int micro_batches = 0;  ///< N_b: micro-batches of one iteration
  std::vector<Stage> stages;

  int pp() const noexcept { return static_cast<int>(stages.size()); }
  int gpu_count() const noexcept;
  /// Samples of one micro-batch, summed over the first stage.
  int micro_batch_samples() const noexcept;
  /// "2 stages: 20 layers dp4 tp2 | 20 layers dp4 tp2", for tables and logs.
  std::string summary() const;

  /// Reads {"micro_batches", "stages": [{"layers", "tp", "groups": [{"node", "gpu_type", "gpus",
  /// "local_batch"}]}]}. An item of "groups" with "nodes", a list, in place of "node" stands for
  /// equal groups in their order: on each node, one for each `tp` of "gpus". Checks the form only
  /// (validate() checks the rest); errors name the stage and the group.
  static Result<Plan> from_json(const Json& json);
  static Result<Plan> parse(std::string_view text);
  /// Writes stages of more than 64 groups with "nodes", so that plans of thousands of GPUs fit a
  /// message.
  Json to_json() const;

  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace swell::plan
