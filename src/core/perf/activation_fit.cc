// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/activation_fit.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/plan/chunks.h"

namespace swell::perf {

namespace {

constexpr double kUsualWhole = 6;  ///< C_np until it is computed; usual values are 5 to 7
constexpr int kRounds = 3;

/// One group's activation peak as an equation: split * k_activ-p + whole * k_activ-np = bytes.
struct Equation {
  double split, whole, bytes;
};

/// Numbers of layers (and MTP modules), heads and modules whose activations a stage keeps at its
/// peak, counted once for each micro-batch, and whether its gradients exist at that time.
struct Kept {
  double layers = 0, heads = 0, modules = 0;
  bool gradients = true;
};

/// Returns what a stage keeps at its peak under 1F1B. `load`: the stage's load.
Kept kept_by(const plan::Layout& layout, int stage, const models::Load& load) {
  const double in_flight = std::min(layout.pp() - stage, layout.micro_batches);
  return {in_flight * (load.layers + load.modules), in_flight * load.heads,
          in_flight * load.modules, layout.micro_batches > layout.pp() - stage};
}

/// Returns what a stage keeps at its peak under `passes`, the plan's schedule. `chunks`: load of
/// each chunk. `k`: gives the activations of layers and heads, which decide when the peak is.
Kept kept_by(const plan::Layout& layout, int stage, const schedule::Schedule& passes,
             const std::vector<models::Load>& chunks, const Coefficients& k) {
  const schedule::Kind frees =
      passes.splits_weights() ? schedule::Kind::weights : schedule::Kind::backward;
  const double tp = layout.stages[static_cast<std::size_t>(stage)].tp;
  const auto bytes = [&](const Kept& kept) {
    return kept.layers * (k.activ_p_bytes / tp + k.activ_np_bytes) +
           kept.heads * k.last.activ_p_bytes / tp + kept.modules * 2 * k.activ_bytes;
  };
  Kept now, most;
  for (const schedule::Operation& pass : passes.orders[static_cast<std::size_t>(stage)]) {
    const models::Load& one =
        chunks[static_cast<std::size_t>(stage * layout.chunks() + pass.chunk)];
    const double sign = pass.kind == schedule::Kind::forward ? 1 : pass.kind == frees ? -1 : 0;
    now.layers += sign * (one.layers + one.modules);
    now.heads += sign * one.heads;
    now.modules += sign * one.modules;
    if (bytes(now) > bytes(most)) most = now;
  }
  return most;
}

}  // namespace

namespace {

/// `passes`: the plan's schedule; null for 1F1B with one chunk a stage.
Result<void> fit(const Profile& profile, const plan::Layout& layout, const models::Chain& chain,
                 const schedule::Schedule* passes, Coefficients& coefficients) {
  const std::vector<models::Load> loads = plan::stage_loads(layout, chain);
  std::vector<models::Load> chunks;
  if (passes != nullptr) chunks = plan::chunk_loads(layout, chain);
  std::vector<Kept> kept_by_stage;
  for (int stage = 0; stage < layout.pp(); ++stage)
    kept_by_stage.push_back(passes != nullptr
                                ? kept_by(layout, stage, *passes, chunks, coefficients)
                                : kept_by(layout, stage, loads[static_cast<std::size_t>(stage)]));
  std::vector<Equation> equations;
  int min_tp = 1 << 30, max_tp = 0;
  for (const GroupObservation& seen : profile.groups) {
    const plan::StageLayout& stage = layout.stages[static_cast<std::size_t>(seen.stage)];
    const plan::GroupLayout& group = stage.groups[static_cast<std::size_t>(seen.group)];
    const Kept& kept = kept_by_stage[static_cast<std::size_t>(seen.stage)];
    double held =
        coefficients.state_part(stage.dp()) * (seen.layer_state_bytes + seen.extra_state_bytes);
    if (kept.gradients)
      held += coefficients.gradient_part(stage.dp()) *
              (seen.layer_param_bytes + seen.extra_param_bytes);
    held += group.local_batch * kept.heads * coefficients.last.activ_p_bytes / stage.tp;
    held += group.local_batch * kept.modules * 2 * coefficients.activ_bytes;
    if (seen.peak_bytes < held)
      return Error(fmt::format(
          "stage {}, group {}: peak_bytes is {:g}; it must be at least the {:g} bytes of state and gradients held there",
          seen.stage, seen.group, seen.peak_bytes, held));
    const double whole = group.local_batch * kept.layers;
    equations.push_back({whole / stage.tp, whole, seen.peak_bytes - held});
    min_tp = std::min(min_tp, stage.tp);
    max_tp = std::max(max_tp, stage.tp);
  }
  if (min_tp == max_tp) {
    if (!profile.whole_activations)
      return Error(
          "the plan has one TP degree, so whole_activations (C_np: 5 for GPT-2 and Qwen2, 7 for LLaMA2) is needed");
    coefficients.activ_np_bytes = *profile.whole_activations * coefficients.activ_bytes;
    double products = 0, squares = 0;
    for (const Equation& e : equations) {
      products += e.split * (e.bytes - e.whole * coefficients.activ_np_bytes);
      squares += e.split * e.split;
    }
    coefficients.activ_p_bytes = std::max(0.0, products / squares);  // 0 means full recomputation
    return {};
  }
  double ss = 0, sw = 0, ww = 0, sb = 0, wb = 0;  // sums of the normal equations of two unknowns
  for (const Equation& e : equations) {
    ss += e.split * e.split;
    sw += e.split * e.whole;
    ww += e.whole * e.whole;
    sb += e.split * e.bytes;
    wb += e.whole * e.bytes;
  }
  const double determinant = ss * ww - sw * sw;
  coefficients.activ_p_bytes = std::max(0.0, (sb * ww - wb * sw) / determinant);
  coefficients.activ_np_bytes = std::max(0.0, (ss * wb - sw * sb) / determinant);
  return {};
}

}  // namespace

Result<void> fit_activations(const Profile& profile, const plan::Layout& layout,
                             const models::Chain& chain, Coefficients& coefficients) {
  coefficients.activ_np_bytes =
      profile.whole_activations.value_or(kUsualWhole) * coefficients.activ_bytes;
  if (!layout.is_scheduled()) return fit(profile, layout, chain, nullptr, coefficients);
  const auto passes = plan::schedule_of(layout);
  if (!passes) return passes.error();
  auto fitted = fit(profile, layout, chain, &*passes, coefficients);
  // The time at which chunks are fullest depends on the coefficients just computed.
  for (int round = 0; fitted && round < kRounds; ++round)
    fitted = fit(profile, layout, chain, &*passes, coefficients);
  return fitted;
}

}  // namespace swell::perf
