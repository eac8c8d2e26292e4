// SPDX-License-Identifier: GPL-2.0-or-later
#include <fmt/format.h>
#include <initializer_list>
#include <iterator>

#include "core/models/model.h"

namespace swell::models {

namespace {

constexpr int kMaxCount = 1 << 26;  // maximum of any width or count

/// Collects typed reads and keeps the first error, so that callers only list fields.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  /// Returns the value of the first of `keys` that is there. If none is, the error names the last
  /// key in a file with GPT-2's names, and the first key in others.
  int need(std::initializer_list<const char*> keys, int least = 0) {
    for (const char* key : keys)
      if (json_.has(key)) return read(key, least);
    const bool is_gpt2 = json_.has("n_embd") || json_.has("n_layer") || json_.has("n_head");
    return read(is_gpt2 ? *std::prev(keys.end()) : *keys.begin(), least);
  }
  int or_else(std::initializer_list<const char*> keys, int otherwise, int least = 0) {
    for (const char* key : keys)
      if (json_.has(key) && !json_is_null(json_.at(key).get())) return read(key, least);
    return otherwise;
  }
  bool flag(const char* key, bool otherwise) {
    if (!json_.has(key)) return otherwise;
    auto value = json_.bool_at(key);
    if (!value) fail(value.error());
    return value ? *value : otherwise;
  }
  std::string text(const char* key, std::string otherwise) {
    if (!json_.has(key)) return otherwise;
    auto value = json_.string_at(key);
    if (!value) fail(value.error());
    return value ? *value : otherwise;
  }
  /// Records an error unless the value `what` of `key` divides the value `whole` of `whole_key`.
  void divides(const char* key, int what, const char* whole_key, int whole) {
    if (what > 0 && whole > 0 && whole % what != 0)
      fail(Error(fmt::format("\"{}\" is {}; it must divide \"{}\", which is {}", key, what,
                             whole_key, whole)));
  }
  /// Returns the first of `keys` that the file has; the first one of all if it has none.
  const char* found(std::initializer_list<const char*> keys) const {
    for (const char* key : keys)
      if (json_.has(key)) return key;
    return *keys.begin();
  }
  const std::optional<Error>& problem() const { return problem_; }

 private:
  int read(const char* key, int least) {
    auto value = json_.integer_at(key, least, kMaxCount);
    if (!value) fail(value.error());
    return value ? static_cast<int>(*value) : 0;
  }
  void fail(const Error& error) {
    if (!problem_) problem_ = error;
  }
  const Json& json_;
  std::optional<Error> problem_;
};

void read_own(Reader& in, const Json& json, Model& model, std::optional<Error>& problem) {
  model.name = in.text("name", "model");
  model.layers = in.need({"layers"});
  model.hidden = in.need({"hidden"});
  model.heads = in.need({"heads"});
  model.sequence = in.need({"sequence"});
  model.global_batch = in.need({"global_batch"});
  model.kv_heads = in.or_else({"kv_heads"}, model.heads);
  model.ffn = in.or_else({"ffn"}, model.hidden <= kMaxCount / 4 ? 4 * model.hidden : kMaxCount);
  model.vocab = in.or_else({"vocab"}, 51200);
  model.head_dim = in.or_else({"head_dim"}, 0);
  model.positions = in.or_else({"positions"}, 0);
  model.gated_mlp = in.flag("gated_mlp", false);
  model.tied_embedding = in.flag("tied_embedding", false);
  if (!json.has("moe")) return;
  const Json part = json.at("moe");
  Reader moe(part);
  model.moe.experts = moe.need({"experts"});
  model.moe.active = moe.need({"active"});
  model.moe.shared = moe.or_else({"shared"}, 0);
  model.moe.expert_ffn = moe.need({"expert_ffn"});
  // Without experts the other members of Moe are unused.
  if (model.moe.experts == 0) model.moe = {};
  if (moe.problem()) problem = moe.problem()->while_doing("\"moe\"");
}

/// Returns the rows of the position embedding that a family learns; 0 for families with rotary
/// embeddings.
int learned_positions(Reader& in, const std::string& family) {
  if (family == "gpt2") return in.or_else({"n_positions", "n_ctx"}, 1024);
  if (family == "bert") return in.or_else({"max_position_embeddings"}, 512);
  if (family == "opt") return in.or_else({"max_position_embeddings"}, 2048) + 2;
  return 0;
}

/// Reads a HuggingFace config.json. Names differ by family: GPT-2's n_*, and those of all others.
void read_huggingface(Reader& in, Model& model) {
  const std::string family = in.text("model_type", "model");
  model.name = in.text("_name_or_path", family);
  model.layers = in.need({"num_hidden_layers", "n_layer"}, 1);
  model.hidden = in.need({"hidden_size", "n_embd"}, 1);
  model.heads = in.need({"num_attention_heads", "n_head"}, 1);
  model.kv_heads = in.or_else({"num_key_value_heads"}, model.heads, 1);
  model.head_dim = in.or_else({"head_dim"}, family == "qwen3" || family == "qwen3_moe" ? 128 : 0);
  // DeepSeek's head_dim is only the rotary part of a head.
  if (in.or_else({"qk_rope_head_dim"}, 0) > 0) model.head_dim = 0;
  const char* heads = in.found({"num_attention_heads", "n_head"});
  in.divides("num_key_value_heads", model.kv_heads, heads, model.heads);
  if (model.head_dim == 0)
    in.divides(heads, model.heads, in.found({"hidden_size", "n_embd"}), model.hidden);
  if (model.heads > 0 && model.hidden % model.heads == 0 &&
      model.head_dim == model.hidden / model.heads)
    model.head_dim = 0;
  model.ffn = in.or_else({"intermediate_size", "ffn_dim", "n_inner"},
                         model.hidden <= kMaxCount / 4 ? 4 * model.hidden : kMaxCount, 1);
  model.vocab = in.need({"vocab_size"}, 1);
  model.sequence =
      in.or_else({"sequence", "max_position_embeddings", "n_positions", "n_ctx"}, 2048, 1);
  model.positions = learned_positions(in, family);
  model.global_batch = in.or_else({"global_batch"}, 256);
  const std::string activation = in.text("hidden_act", in.text("activation_function", "gelu"));
  model.gated_mlp = activation == "silu" || activation == "swiglu" || activation == "swish";
  model.tied_embedding =
      in.flag("tie_word_embeddings", family == "gpt2" || family == "opt" || family == "bert");
  model.moe.experts = in.or_else({"num_local_experts", "num_experts", "n_routed_experts"}, 0);
  if (model.moe.experts > 0) {
    model.moe.active = in.need({"num_experts_per_tok"});
    model.moe.shared = in.or_else({"n_shared_experts"}, 0);
    model.moe.expert_ffn = in.or_else({"moe_intermediate_size"}, model.ffn);
  }
}

/// Returns the HuggingFace config of a model's text part. In a multimodal model the text part is a
/// member, whose members take precedence over those beside it.
Json text_part(const Json& json) {
  for (const char* key : {"text_config", "llm_config", "language_config"}) {
    const Json part = json.at(key);
    if (!is_object(part)) continue;
    Json whole = Json::object();
    for (const auto& [name, value] : members(json)) whole.set(name.c_str(), value);
    for (const auto& [name, value] : members(part)) whole.set(name.c_str(), value);
    return whole;
  }
  return json;
}

bool is_huggingface(const Json& json) {
  for (const char* key :
       {"hidden_size", "n_embd", "num_hidden_layers", "n_layer", "num_attention_heads", "n_head",
        "vocab_size", "model_type", "architectures", "text_config"})
    if (json.has(key)) return true;
  return false;
}

}  // namespace

Result<Model> model_from_json(const Json& whole) {
  if (!is_object(whole)) return Error("a model is a JSON object");
  if (whole.has("swell_graph"))
    return Error(
        "this is a graph of operators, which only swell plan --model reads; give the model's config.json here");
  const Json json = text_part(whole);
  Model model;
  Reader in(json);
  std::optional<Error> problem;
  if (!json.has("layers") && is_huggingface(json)) read_huggingface(in, model);
  else read_own(in, json, model, problem);
  model.mtp_heads = in.or_else({"mtp_heads"}, 0);
  model.cp = in.or_else({"cp"}, 1);
  model.ep = in.or_else({"ep"}, 1);
  if (in.problem()) return in.problem()->while_doing("model " + model.name);
  if (problem) return problem->while_doing("model " + model.name);
  if (auto good = check(model); !good) return good.error();
  return model;
}

Json to_json(const Model& model) {
  Json json = Json::object({{"name", model.name},
                            {"layers", model.layers},
                            {"hidden", model.hidden},
                            {"heads", model.heads},
                            {"kv_heads", model.kv_heads},
                            {"ffn", model.ffn},
                            {"gated_mlp", model.gated_mlp},
                            {"tied_embedding", model.tied_embedding},
                            {"vocab", model.vocab},
                            {"sequence", model.sequence},
                            {"global_batch", model.global_batch}});
  if (model.head_dim > 0) json.set("head_dim", model.head_dim);
  if (model.positions > 0) json.set("positions", model.positions);
  if (model.mtp_heads > 0) json.set("mtp_heads", model.mtp_heads);
  if (model.cp > 1) json.set("cp", model.cp);
  if (model.ep > 1) json.set("ep", model.ep);
  if (model.moe.experts > 0)
    json.set("moe", Json::object({{"experts", model.moe.experts},
                                  {"active", model.moe.active},
                                  {"shared", model.moe.shared},
                                  {"expert_ffn", model.moe.expert_ffn}}));
  return json;
}

}  // namespace swell::models
