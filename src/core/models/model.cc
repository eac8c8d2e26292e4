// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/models/model.h"

#include "core/count_of.h"

#include <fmt/format.h>
#include <utility>

namespace swell::models {

namespace {

double attention_parameters(const Model& m) {
  const double h = m.hidden, query = m.query_width();
  const double kv = query * m.kv_heads / m.heads;
  return 2 * h * query + 2 * h * kv;  // query and output; key and value
}

double mlp_parameters(const Model& m, double inner) {
  return (m.gated_mlp ? 3.0 : 2.0) * m.hidden * inner;
}

}  // namespace

double Model::layer_parameters() const noexcept {
  const double norms = 4.0 * hidden;  // two norms with scale and bias
  if (moe.experts == 0) return attention_parameters(*this) + mlp_parameters(*this, ffn) + norms;
  const double router = static_cast<double>(hidden) * moe.experts;
  return attention_parameters(*this) +
         (moe.experts + moe.shared) * mlp_parameters(*this, moe.expert_ffn) + router + norms;
}

double Model::held_layer_parameters() const noexcept {
  const double elsewhere = moe.experts - moe.experts / ep;
  return layer_parameters() - elsewhere * mlp_parameters(*this, moe.expert_ffn);
}

double Model::active_layer_parameters() const noexcept {
  if (moe.experts == 0) return layer_parameters();
  return attention_parameters(*this) +
         (moe.active + moe.shared) * mlp_parameters(*this, moe.expert_ffn) +
         static_cast<double>(hidden) * moe.experts;
}

double Model::embedding_parameters() const noexcept { return static_cast<double>(vocab) * hidden; }

double Model::parameters() const noexcept {
  const double mtp = mtp_heads == 0 ? 0 : mtp_heads * (layer_parameters() + 2.0 * hidden * hidden);
  return layers * layer_parameters() + (tied_embedding ? 1 : 2) * embedding_parameters() +
         static_cast<double>(positions) * hidden + mtp;
}

double Model::layer_forward_flop() const noexcept {
  const double tokens = sequence;
  return 2 * active_layer_parameters() * tokens + 4 * tokens * tokens * query_width();
}

double Model::head_forward_flop() const noexcept { return 2 * embedding_parameters() * sequence; }

Result<void> check(const Model& model) {
  const struct {
    const char* name;
    int value;
  } positive[] = {{"layers", model.layers},     {"hidden", model.hidden},
                  {"heads", model.heads},       {"kv_heads", model.kv_heads},
                  {"ffn", model.ffn},           {"vocab", model.vocab},
                  {"sequence", model.sequence}, {"global_batch", model.global_batch}};
  for (const auto& field : positive)
    if (field.value < 1)
      return Error(fmt::format("model {}: \"{}\" is {}; it must be at least 1", model.name,
                               field.name, field.value));
  if (model.head_dim == 0 && model.hidden % model.heads != 0)
    return Error(fmt::format("model {}: {} do not divide the hidden width {}", model.name,
                             count_of(model.heads, "head"), model.hidden));
  if (model.heads % model.kv_heads != 0)
    return Error(fmt::format("model {}: {} key-value heads do not divide {}", model.name,
                             model.kv_heads, count_of(model.heads, "head")));
  if (model.head_dim < 0 || model.positions < 0)
    return Error(
        fmt::format("model {}: \"head_dim\" is {} and \"positions\" is {}; neither may be negative",
                    model.name, model.head_dim, model.positions));
  if (model.mtp_heads < 0 || model.mtp_heads > kMostMtpHeads)
    return Error(fmt::format("model {}: \"mtp_heads\" is {}; it must be from 0 to {}", model.name,
                             model.mtp_heads, kMostMtpHeads));
  if (model.moe.experts > 0 &&
      (model.moe.active < 1 || model.moe.active > model.moe.experts || model.moe.expert_ffn < 1))
    return Error(fmt::format(
        "model {}: {} of {} experts are active, with an inner width of {}; give 1 to {} active experts "
        "and a width of at least 1",
        model.name, model.moe.active, model.moe.experts, model.moe.expert_ffn, model.moe.experts));
  if (model.cp < 1 || model.cp > kMostCp)
    return Error(fmt::format("model {}: \"cp\" is {}; it must be from 1 to {}", model.name,
                             model.cp, kMostCp));
  if (model.ep < 1 || model.ep > kMostEp)
    return Error(fmt::format("model {}: \"ep\" is {}; it must be from 1 to {}", model.name,
                             model.ep, kMostEp));
  if (model.sequence % model.cp != 0)
    return Error(fmt::format(
        "model {}: \"cp\" {} does not divide the {} of a sample; give a degree that does",
        model.name, model.cp, count_of(model.sequence, "token")));
  if (model.ep > 1 && model.moe.experts == 0)
    return Error(
        fmt::format("model {}: \"ep\" is {}, and its layers have no experts; leave it out, or say "
                    "\"moe\"",
                    model.name, model.ep));
  if (model.ep > 1 && model.moe.experts % model.ep != 0)
    return Error(fmt::format(
        "model {}: \"ep\" {} does not divide the {} of a layer; give a degree that does",
        model.name, model.ep, count_of(model.moe.experts, "expert")));
  return {};
}

Result<void> check_planned_for(const Model& model) {
  if (model.layers > kMostLayers || model.global_batch > kMostBatch)
    return Error(fmt::format("{} and {} a step; at most {} and {} are planned for",
                             count_of(model.layers, "layer"),
                             count_of(model.global_batch, "sample"), count_of(kMostLayers, "layer"),
                             count_of(kMostBatch, "sample")));
  return {};
}

Result<void> check_runs(const Model& model) {
  for (const auto& [name, degree] : {std::pair{"cp", model.cp}, std::pair{"ep", model.ep}})
    if (degree > 1)
      return Error(fmt::format(
          "model {}: \"{}\" is {}; jobs run without CP and EP, which swell plan alone knows: leave "
          "it out",
          model.name, name, degree));
  return {};
}

}  // namespace swell::models
