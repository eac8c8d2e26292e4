// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/activation_fit.h"

#include <algorithm>
#include <fmt/format.h>

namespace swell::perf {

namespace {

/// One group's activation peak as an equation: split * k_activ-p + whole * k_activ-np = bytes.
struct Equation {
  double split, whole, bytes;
};

}  // namespace

Result<void> fit_activations(const Profile& profile, const plan::Layout& layout,
                             const std::vector<models::Load>& loads, Coefficients& coefficients) {
  std::vector<Equation> equations;
  int min_tp = 1 << 30, max_tp = 0;
  for (const GroupObservation& seen : profile.groups) {
    const plan::StageLayout& stage = layout.stages[static_cast<std::size_t>(seen.stage)];
    const plan::GroupLayout& group = stage.groups[static_cast<std::size_t>(seen.group)];
    const int in_flight = std::min(layout.pp() - seen.stage, layout.micro_batches);
    const double grad = layout.micro_batches > layout.pp() - seen.stage ? 1 : 0;
    double held = seen.layer_state_bytes + seen.extra_state_bytes +
                  grad * (seen.layer_param_bytes + seen.extra_param_bytes);
    const models::Load& load = loads[static_cast<std::size_t>(seen.stage)];
    held +=
        group.local_batch * in_flight * (load.heads * coefficients.last.activ_p_bytes) / stage.tp;
    held += group.local_batch * in_flight * load.modules * 2 * coefficients.activ_bytes;
    if (seen.peak_bytes < held)
      return Error(fmt::format(
          "stage {}, group {}: peak_bytes is {:g}; it must be at least the {:g} bytes of state and gradients held there",
          seen.stage, seen.group, seen.peak_bytes, held));
    const double whole =
        static_cast<double>(group.local_batch) * (load.layers + load.modules) * in_flight;
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

}  // namespace swell::perf
