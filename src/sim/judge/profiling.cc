// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/judge/profiling.h"

#include <algorithm>

#include "sim/judge/judge.h"
#include "sim/judge/rings.h"
#include "core/perf/observe.h"

namespace swell::sim::judge {

Hardware make_hardware(const models::Model& model, const cluster::Cluster& cluster, const std::function<double(double)>& factor) {
  Hardware hardware;
  const double share = 0.5 * factor(0.2), backward = 2.0 * factor(0.15);
  for (const cluster::GpuType& type : cluster.types()) {
    DeviceSpeed speed;
    speed.forward_layers_per_s = share * factor(0.05) * type.tflops(cluster::Precision::bf16) * 1e12 / model.layer_forward_flop();
    speed.backward_layers_per_s = speed.forward_layers_per_s / backward;
    speed.optimizer_layers_per_s = type.hbm_bytes_per_s / (model.layer_parameters() * 16);
    hardware.devices.push_back(speed);
  }
  hardware.activation_bytes = 2.0 * model.sequence * model.hidden;
  hardware.gradient_bytes = 2.0 * model.layer_parameters();
  hardware.overlapped_share = 0.75 * factor(0.2);
  return hardware;
}

perf::Profile profile_of(const plan::Layout& layout, const models::Model& model, const cluster::Cluster& cluster,
                         const perf::Coefficients& bytes, const Hardware& hardware) {
  perf::Profile profile = perf::observe(layout, model, cluster, bytes);
  const Iteration iteration = execute(layout, cluster, hardware, true);
  for (perf::GroupObservation& seen : profile.groups) {
    const auto& stage = layout.stages[static_cast<std::size_t>(seen.stage)];
    const auto& group = stage.groups[static_cast<std::size_t>(seen.group)];
    const double reduce = group_allreduce_s(group, stage.tp, hardware.activation_bytes * group.local_batch, cluster);
    seen.fwd_commu_s = 2 * stage.layers * reduce;
    double last_backward = 0, reduced = 0;
    for (const Operation& done : iteration.operations) {
      if (done.stage != seen.stage) continue;
      const double took = done.end_s - done.begin_s;
      const bool own = done.group == seen.group;
      using Kind = Operation::Kind;
      if (done.kind == Kind::forward && own) seen.fwd_s = took;
      if (done.kind == Kind::backward && own) seen.bwd_s = took;
      if (done.kind == Kind::backward) last_backward = std::max(last_backward, done.end_s);
      if (done.kind == Kind::optimizer && own) seen.optim_s = took;
      if (done.kind == Kind::gradients && own) reduced = done.end_s;
    }
    seen.commu_extra_s = stage.dp() > 1 ? std::max(0.0, reduced - last_backward) : 0;
  }
  return profile;
}

}  // namespace swell::sim::judge
