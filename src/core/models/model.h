// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "core/json.h"
#include "core/result.h"

namespace swell::models {

/// Mixture of experts in place of each layer's MLP; `experts` 0: a dense model.
struct Moe {
  int experts = 0;     ///< routed experts of a layer
  int active = 0;      ///< routed experts a token visits
  int shared = 0;      ///< experts every token visits
  int expert_ffn = 0;  ///< inner width of one expert
  friend bool operator==(const Moe&, const Moe&) = default;
};

/// A decoder-only transformer and how it is trained. Made from the catalogue, JSON or a
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
  /// Multi-token prediction: heads behind the model, each a module of one layer and an output
  /// projection with its loss (chain.h).
  int mtp_heads = 0;
  int head_dim = 0;   ///< width of one head; 0: hidden / heads
  int positions = 0;  ///< rows of a learned position embedding; 0: the model has none
  int cp = 1;         ///< context parallelism: GPUs that share the tokens of a sample
  int ep = 1;         ///< expert parallelism: ranks that share the experts of a layer

  /// Width of all query heads together.
  double query_width() const noexcept {
    return head_dim > 0 ? static_cast<double>(heads) * head_dim : hidden;
  }
  /// Parameters of one transformer layer, all experts included.
  double layer_parameters() const noexcept;
  /// Parameters of one layer that a rank of an EP group holds, before division by TP.
  double held_layer_parameters() const noexcept;
  /// Parameters of one layer that one token visits.
  double active_layer_parameters() const noexcept;
  /// Parameters of the input embedding; the output projection has as many unless tied.
  double embedding_parameters() const noexcept;
  /// All parameters, those of MTP modules included.
  double parameters() const noexcept;

  /// Floating point operations of one layer's forward pass for one sample: two for each parameter
  /// and token, and the attention scores (4 * sequence^2 * hidden).
  double layer_forward_flop() const noexcept;
  /// Floating point operations of the output projection's forward pass for one sample.
  double head_forward_flop() const noexcept;

  friend bool operator==(const Model&, const Model&) = default;
};

/// Names the first rule that `model` breaks: every width above 0, heads that divide hidden, CP that
/// divides the tokens of a sample, EP that divides the experts, ...
Result<void> check(const Model& model);

/// No training that is planned for while it runs is larger: planning time grows with both.
inline constexpr int kMostLayers = 4096, kMostBatch = 1 << 24;
inline constexpr int kMostMtpHeads = 16;
/// A group of TP x CP GPUs stands on one node; an EP group may be over many.
inline constexpr int kMostCp = 64, kMostEp = 4096;
/// Names what of `model` is more than that.
Result<void> check_planned_for(const Model& model);
/// Names the CP or EP of `model`: no plan of a running job has them, since programs cannot run it.
Result<void> check_runs(const Model& model);

/// Reads Swell's own form (the names of Model's members; kv_heads, ffn, vocab, mtp_heads, cp, ep
/// and moe may be left out: heads, 4 * hidden, 51200, 0, 1, 1, dense), or a HuggingFace
/// config.json, which is told by its "hidden_size" or "n_embd". `sequence`, `global_batch`,
/// `mtp_heads`, `cp` and `ep` replace what a config.json does not say; its number of MTP layers
/// does not count, since trainers of HuggingFace models leave these out.
Result<Model> model_from_json(const Json& json);
Json to_json(const Model& model);

}  // namespace swell::models
