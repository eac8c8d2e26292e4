// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "core/json.h"
#include "core/result.h"

namespace swell::models {

/// Mixture of experts, which replaces each layer's MLP; `experts` 0: a dense model.
struct Moe {
  int experts = 0;     ///< routed experts of a layer
  int active = 0;      ///< routed experts that a token visits
  int shared = 0;      ///< experts that every token visits
  int expert_ffn = 0;  ///< inner width of one expert
  friend bool operator==(const Moe&, const Moe&) = default;
};

/// A decoder-only transformer and its training parameters. Made from the catalogue, JSON or a
/// HuggingFace config.json; read by the performance model and the planner.
struct Model {
  std::string name;
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;        ///< key and value heads; equal to `heads` without grouped queries
  int ffn = 0;             ///< inner width of the MLP
  bool gated_mlp = false;  ///< three matrices (LLaMA, Qwen) instead of two (GPT)
  bool tied_embedding = false;
  int vocab = 0;
  int sequence = 0;      ///< tokens of one sample
  int global_batch = 0;  ///< samples of one iteration
  Moe moe;
  /// Multi-token prediction: number of additional heads, each a module of one layer and an output
  /// projection with its loss (chain.h).
  int mtp_heads = 0;
  int head_dim = 0;   ///< width of one head; 0: hidden / heads
  int positions = 0;  ///< rows of a learned position embedding; 0: the model has none
  int cp = 1;         ///< context parallelism: GPUs that share the tokens of a sample
  int ep = 1;         ///< expert parallelism: ranks that share the experts of a layer

  /// Returns the total width of all query heads.
  double query_width() const noexcept {
    return head_dim > 0 ? static_cast<double>(heads) * head_dim : hidden;
  }
  /// Returns the parameters of one transformer layer, including all experts.
  double layer_parameters() const noexcept;
  /// Returns the parameters of one layer that a rank of an EP group holds, before division by TP.
  double held_layer_parameters() const noexcept;
  /// Returns the parameters of one layer that one token visits.
  double active_layer_parameters() const noexcept;
  /// Returns the parameters of the input embedding; the output projection has as many unless tied.
  double embedding_parameters() const noexcept;
  /// Returns the number of all parameters, including MTP modules.
  double parameters() const noexcept;

  /// Returns the floating point operations of one layer's forward pass for one sample: two for each
  /// parameter and token, and the attention scores (4 * sequence^2 * hidden).
  double layer_forward_flop() const noexcept;
  /// Returns the floating point operations of the output projection's forward pass for one sample.
  double head_forward_flop() const noexcept;

  friend bool operator==(const Model&, const Model&) = default;
};

/// Returns an error that names the first rule that `model` breaks: every width is above 0, heads
/// divide hidden, CP divides the tokens of a sample, EP divides the experts, ...
Result<void> check(const Model& model);

/// Maximum size of a training that is planned while it runs: planning time grows with both.
inline constexpr int kMostLayers = 4096, kMostBatch = 1 << 24;
inline constexpr int kMostMtpHeads = 16;
/// Maximum degrees. A group of TP x CP GPUs is on one node; an EP group may span many.
inline constexpr int kMostCp = 64, kMostEp = 4096;
/// Returns an error that names the figure of `model` that exceeds these limits.
Result<void> check_planned_for(const Model& model);
/// Returns an error that names the CP or EP of `model` if it has any: programs cannot run these, so
/// plans of running jobs do not have them.
Result<void> check_runs(const Model& model);

/// Reads Swell's own form, whose names are Model's members. kv_heads, ffn, vocab, mtp_heads, cp, ep
/// and moe are optional (defaults: heads, 4 * hidden, 51200, 0, 1, 1, dense). Also reads a
/// HuggingFace config.json, recognized by "hidden_size" or "n_embd"; `sequence`, `global_batch`,
/// `mtp_heads`, `cp` and `ep` add values that it lacks. Its number of MTP layers is ignored, since
/// trainers of HuggingFace models leave these out.
Result<Model> model_from_json(const Json& json);
Json to_json(const Model& model);

}  // namespace swell::models
