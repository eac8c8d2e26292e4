// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/models/chain.h"

#include <algorithm>

namespace swell::models {

namespace {

constexpr double kHalf = 2;  // bytes of a number in half precision
// Activations of a layer for each element of the hidden state, kept for the backward pass
// (Korthikanti et al.): split over a TP group, and whole on every GPU.
constexpr double kSplitElements = 12, kWholeElements = 5;
// Elements that a layer reads and writes besides its matrix products, also for each element of the
// hidden state.
constexpr double kTrafficElements = 19;
// Bytes of one logit in half and in full precision, and of its gradient.
constexpr double kLogitBytes = 10;

}  // namespace

Chain::Chain(const Model& model) noexcept
    : layers_(model.layers),
      mtp_heads_(model.mtp_heads),
      tied_(model.tied_embedding),
      matrix_(model.embedding_parameters()) {
  const double tokens = model.sequence, hidden = model.hidden;
  const double state = kHalf * tokens * hidden;
  Unit embedding{UnitKind::embedding, 0, 2 * state, 0, 0, 0, state};
  Unit layer{UnitKind::layer,
             model.layer_forward_flop(),
             kTrafficElements * state,
             model.layer_parameters(),
             kSplitElements * state,
             kWholeElements * state,
             state};
  const double logits = kLogitBytes * tokens * model.vocab;
  Unit head{UnitKind::head, model.head_forward_flop(), logits, 2 * hidden, logits, state, state};
  // DeepSeek-V3's module: norms of the state and of the next token's embedding, a projection of
  // both to one state, and a layer.
  Unit module = layer;
  module.kind = UnitKind::mtp_module;
  module.forward_flop += 2 * 2 * hidden * hidden * tokens;
  module.parameters += 2 * hidden * hidden + 4 * hidden;
  module.traffic_bytes += 4 * state;
  module.whole_bytes += 2 * state;
  Unit mtp_head = head;
  mtp_head.kind = UnitKind::mtp_head;
  kinds_ = {embedding, layer, head, module, mtp_head};
  if (layer.forward_flop > 0) module_work_ = module.forward_flop / layer.forward_flop;
  const double held = model.held_layer_parameters();
  if (held > 0) module_parameters_ = (module.parameters - (layer.parameters - held)) / held;
}

UnitKind Chain::kind_at(int index) const noexcept {
  if (index == 0) return UnitKind::embedding;
  if (index <= layers_) return UnitKind::layer;
  if (index == layers_ + 1) return UnitKind::head;
  return (index - layers_) % 2 == 0 ? UnitKind::mtp_module : UnitKind::mtp_head;
}

Unit Chain::at(int index) const noexcept {
  Unit unit = of(kind_at(index));
  if (index + 1 == units()) unit.boundary_bytes = 0;
  if (unit.kind != UnitKind::mtp_module) unit.reads = index - 1;
  else unit.reads = index - 2;  // skips the head in front of it
  return unit;
}

Load Chain::load(int first, int end) const noexcept {
  const auto common = [&](int from, int to) {
    return std::max(0, std::min(end, to) - std::max(first, from));
  };
  Load load;
  load.embeddings = common(0, 1);
  load.layers = common(1, layers_ + 1);
  load.heads = common(layers_ + 1, layers_ + 2);
  // Count from behind the head: MTP modules have even indexes, MTP heads odd ones.
  const int behind = layers_ + 2;
  const int from = std::clamp(first - behind, 0, 2 * mtp_heads_);
  const int to = std::clamp(end - behind, from, 2 * mtp_heads_);
  load.modules = (to + 1) / 2 - (from + 1) / 2;
  load.heads += to - from - load.modules;
  return load;
}

double Chain::parameters(const Load& load) const noexcept {
  return load.layers * of(UnitKind::layer).parameters +
         load.modules * of(UnitKind::mtp_module).parameters +
         load.heads * of(UnitKind::head).parameters + load.matrices(tied_) * matrix_;
}

}  // namespace swell::models
