// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/models/transformer.h"

#include <utility>

namespace swell::models {

namespace {

constexpr double kHalf = 2;  // bytes of a number in half precision
// Memory traffic of a forward pass in bytes; values inside kernels are fp32. For each element of
// the hidden state: two norms, and two dropouts with residual.
constexpr double kNormBytes = 19;
// For each element of the queries: biases and transposes of query, key and value.
constexpr double kTransposeBytes = 8;
// For each attention score in memory: written, scaled and masked, normalized, dropped out, read.
constexpr double kScoreBytes = 12.5;
// For each logit: in half and in full precision, maximum and sum, probability, loss.
constexpr double kLogitBytes = 20;

Operator product(const char* name, double tokens, double from, double to, double count = 1) {
  Operator made;
  made.name = name;
  made.kind = OperatorKind::matmul;
  made.parameters = count * from * to;
  made.weight_bytes = kHalf * made.parameters;
  made.flop = 2 * tokens * from * to;
  made.read_bytes = kHalf * tokens * from;
  made.write_bytes = kHalf * tokens * to;
  return made;
}

/// Returns an operator without products: half of `bytes` is read, half is written.
Operator traffic(const char* name, OperatorKind kind, double bytes) {
  Operator made;
  made.name = name;
  made.kind = kind;
  made.read_bytes = made.write_bytes = bytes / 2;
  return made;
}

Operator divided(Operator made, SplitDimension along, int extent) {
  made.split[static_cast<std::size_t>(along)] = extent;
  return made;
}

}  // namespace

std::vector<Operator> layer_operators(const Model& model, Scores scores) {
  const double tokens = model.sequence, hidden = model.hidden, query = model.query_width();
  const double key_value = 2 * query * model.kv_heads / model.heads;
  std::vector<Operator> made;
  Operator norms = traffic("norms", OperatorKind::norm, kNormBytes * tokens * hidden);
  norms.parameters = 4 * hidden;
  norms.weight_bytes = kHalf * norms.parameters;
  // Two operations for each parameter and token, as in Model::layer_forward_flop().
  norms.flop = model.moe.experts == 0 ? 2 * tokens * norms.parameters : 0;
  made.push_back(std::move(norms));
  const auto heads = [&](Operator one) {
    made.push_back(divided(std::move(one), SplitDimension::heads, model.heads));
  };
  heads(product("query_key_value", tokens, hidden, query + key_value));
  heads(traffic("transposes", OperatorKind::elementwise, kTransposeBytes * tokens * query));
  Operator attention;
  attention.name = "attention";
  attention.kind = scores == Scores::fused ? OperatorKind::attention : OperatorKind::matmul;
  attention.flop = 4 * tokens * tokens * query;
  attention.read_bytes = kHalf * tokens * (query + key_value);
  attention.write_bytes = kHalf * tokens * query;
  heads(std::move(attention));
  if (scores == Scores::stored)
    heads(
        traffic("scores", OperatorKind::elementwise, kScoreBytes * model.heads * tokens * tokens));
  heads(product("output", tokens, query, hidden));

  const auto mlp = [&](const char* up, const char* activation, const char* down, double visits,
                       double count, double inner, SplitDimension along, int extent) {
    const double wide = model.gated_mlp ? 2 * inner : inner;
    made.push_back(divided(product(up, visits, hidden, wide, count), along, extent));
    made.push_back(
        divided(traffic(activation, OperatorKind::elementwise, kHalf * visits * (wide + inner)),
                along, extent));
    made.push_back(divided(product(down, visits, inner, hidden, count), along, extent));
  };
  const Moe& moe = model.moe;
  if (moe.experts == 0) {
    mlp("up", "activation", "down", tokens, 1, model.ffn, SplitDimension::columns, model.ffn);
    return made;
  }
  made.push_back(product("router", tokens, hidden, moe.experts));
  mlp("experts_up", "experts_activation", "experts_down", tokens * moe.active, moe.experts,
      moe.expert_ffn, SplitDimension::experts, moe.experts);
  if (moe.shared > 0)
    mlp("shared_up", "shared_activation", "shared_down", tokens * moe.shared, moe.shared,
        moe.expert_ffn, SplitDimension::columns, moe.expert_ffn);
  return made;
}

std::vector<Operator> head_operators(const Model& model) {
  const double tokens = model.sequence;
  const auto columns = [&](Operator one) {
    return divided(std::move(one), SplitDimension::columns, model.vocab);
  };
  return {columns(product("projection", tokens, model.hidden, model.vocab)),
          columns(traffic("loss", OperatorKind::loss, kLogitBytes * tokens * model.vocab))};
}

}  // namespace swell::models
