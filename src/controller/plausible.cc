// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/plausible.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace swell::controller {

namespace {

/// Measured speeds above data sheets by up to this factor are believed all the same: sizes are
/// estimates, and clocks of short passes are coarse.
constexpr double kMargin = 2;
/// No format that is trained in keeps a gradient in more bytes than it computes with peaks for.
constexpr double kGradientBytes = 4, kActivationBytes = 4;
/// Passes that explain more of a step than this took longer than the step that they are part of.
constexpr double kMostOfStep = 1.5;
/// With less of the step explained, more GPUs would not do what the passes say.
constexpr double kLeastOfStep = 0.5;

/// Operations of a forward pass that leave no doubt: two for each parameter and token. The width of
/// a layer is what its parameters say (12 times its square), the tokens are those of one
/// activation.
double forward_flop(const perf::GroupObservation& seen, const perf::Profile& profile,
                    const plan::Stage& stage) {
  const plan::TpGroup& group = stage.groups[static_cast<std::size_t>(seen.group)];
  const double parameters = seen.layer_param_bytes / kGradientBytes;
  const double width = std::max(std::sqrt(parameters * stage.tp / stage.layers / 12), 1.0);
  const double tokens = std::max(profile.activ_bytes / kActivationBytes / width, 1.0);
  return 2 * parameters * tokens * group.local_batch;
}

double peak_flop_per_s(const cluster::GpuType& type) {
  return 1e12 * std::max({type.fp32_tflops, type.fp16_tflops, type.bf16_tflops, type.fp8_tflops});
}

}  // namespace

Result<void> check_possible(const perf::Profile& profile, const cluster::Cluster& machines) {
  for (const perf::GroupObservation& seen : profile.groups) {
    const plan::Stage& stage = profile.plan.stages[static_cast<std::size_t>(seen.stage)];
    const plan::TpGroup& group = stage.groups[static_cast<std::size_t>(seen.group)];
    const cluster::GpuType& type = machines.type(*cluster::find_type(machines, group.gpu_type));
    const auto impossible = [&](const char* what, double value, double least,
                                const std::string& why) {
      return Error(fmt::format(
          "{} is {:.3g} s on {}; a {} needs at least {:.3g} s {}: mark the regions around what they "
          "are named for",
          what, value, group.node, type.name, least, why));
    };
    const double hbm = kMargin * type.hbm_bytes_per_s;
    if (hbm > 0) {
      // Parameters are half of fp32 gradients at the least.
      const double reads_s = seen.layer_param_bytes / 2 / hbm;
      if (seen.fwd_s < reads_s)
        return impossible("fwd_s", seen.fwd_s, reads_s, "to read its parameters");
      if (seen.bwd_s < reads_s)
        return impossible("bwd_s", seen.bwd_s, reads_s, "to read its parameters");
      const double shards = std::max(
          1, profile.max_shards > 0 ? std::min(stage.dp(), profile.max_shards) : stage.dp());
      const double state_s = seen.layer_state_bytes *
                             (1 - profile.sharded_state + profile.sharded_state / shards) / hbm;
      if (seen.optim_s > 0 && seen.optim_s < state_s)
        return impossible("optim_s", seen.optim_s, state_s, "to read its state");
    }
    const double computes_s =
        forward_flop(seen, profile, stage) / (kMargin * peak_flop_per_s(type));
    if (seen.fwd_s < computes_s)
      return impossible("fwd_s", seen.fwd_s, computes_s, "at its peak speed");
    if (seen.bwd_s < computes_s)
      return impossible("bwd_s", seen.bwd_s, computes_s, "at its peak speed");
    if (seen.peak_bytes > kMargin * type.memory_bytes)
      return Error(fmt::format(
          "peak_bytes is {:.3g} on {}; a {} has {:.3g}: report what one GPU held at most",
          seen.peak_bytes, group.node, type.name, type.memory_bytes));
  }
  return {};
}

bool explains_too_little(double regions_s, double step_s) {
  return regions_s < kLeastOfStep * step_s;
}

Result<void> check_explains(double regions_s, double step_s) {
  if (!(step_s > 0) || !std::isfinite(regions_s))
    return Error(fmt::format("step_s is {:g}; it must be above 0", step_s));
  if (regions_s > kMostOfStep * step_s)
    return Error(fmt::format(
        "its passes need {:.3g} s a step and its steps took {:.3g} s: regions overlap, or "
        "are not those of the steps",
        regions_s, step_s));
  if (explains_too_little(regions_s, step_s))
    return Error(fmt::format(
        "its passes explain {:.0f} % of its steps: {:.3g} of {:.3g} s; mark all that takes "
        "time, or look for what waits between steps",
        100 * regions_s / step_s, regions_s, step_s));
  return {};
}

}  // namespace swell::controller
