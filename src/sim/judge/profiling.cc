// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/judge/profiling.h"

#include <algorithm>

#include "sim/judge/collectives.h"
#include "sim/judge/compute.h"
#include "sim/judge/judge.h"
#include "sim/judge/memory.h"

namespace swell::sim::judge {

namespace {

// C_np as a user would state it: 10 bytes for each element that TP does not split, over 2 bytes an
// element.
constexpr double kWholeActivations = 5;

/// Fills in the bytes of one group: those of its layers, and of everything else that it holds.
void count_bytes(perf::GroupObservation& seen, const plan::Layout& layout,
                 const plan::GroupLayout& group, const models::Load& load,
                 const Hardware& hardware) {
  const models::Model& model = hardware.model;
  const Software& software = hardware.software;
  const plan::StageLayout& stage = layout.stages[static_cast<std::size_t>(seen.stage)];
  double layers = load.layers * parameters_of_layer(model);
  if (load.modules > 0) layers += load.modules * parameters_of_module(model);
  layers /= stage.tp;
  const double others =
      load.matrices(model.tied_embedding) * parameters_of_embedding(model) / stage.tp;
  const double state =
      software.state_bytes + software.sharded_bytes / (software.divides_updates ? 1 : stage.dp());
  seen.layer_param_bytes = layers * software.gradient_bytes;
  seen.layer_state_bytes = layers * state;
  seen.extra_param_bytes = others * software.gradient_bytes;
  seen.extra_state_bytes = others * state;
  seen.peak_bytes = peak(layout, seen.stage, group, model, software).allocated();
}

}  // namespace

Hardware make_hardware(const models::Model& model, const cluster::Cluster& cluster,
                       const Software& software, const std::function<double(double)>& factor) {
  Hardware hardware{model, software, {}, {}};
  const double usual = factor(0.15);
  for (std::size_t type = 0; type < cluster.types().size(); ++type)
    hardware.slowness.push_back(usual * factor(0.05));
  hardware.software.overlapped_share *= factor(0.2);
  hardware.software.layer_launch_s *= factor(0.2);
  return hardware;
}

perf::Profile profile_of(const plan::Layout& layout, const cluster::Cluster& cluster,
                         const Hardware& hardware) {
  const models::Model& model = hardware.model;
  perf::Profile profile;
  profile.plan = plan::name_all(layout, cluster);
  profile.activ_bytes = 2.0 * model.sequence * model.hidden;
  profile.whole_activations = kWholeActivations;
  profile.tied_embedding = model.tied_embedding;
  profile.layer_launch_s = hardware.software.layer_launch_s / 4;
  const Pipeline pipeline = Pipeline::of(layout, model);
  const Iteration iteration = execute(layout, pipeline, cluster, hardware, true);
  for (int i = 0; i < layout.pp(); ++i) {
    const plan::StageLayout& stage = layout.stages[static_cast<std::size_t>(i)];
    const models::Load load = pipeline.stage(i);
    if (stage.dp() > 1 && hardware.software.divides_updates)
      profile.sharded_state = hardware.software.sharded_bytes /
                              (hardware.software.state_bytes + hardware.software.sharded_bytes);
    for (int j = 0; j < stage.dp(); ++j) {
      const plan::GroupLayout& group = stage.groups[static_cast<std::size_t>(j)];
      perf::GroupObservation seen;
      seen.stage = i;
      seen.group = j;
      const double reduce =
          group_allreduce_s(group, stage.tp, profile.activ_bytes * group.local_batch, cluster);
      seen.fwd_commu_s = 2 * (load.layers + load.modules) * reduce;
      double last_backward = 0, reduced = 0, gathered_s = 0;
      for (const Operation& done : iteration.operations) {
        if (done.stage != i) continue;
        const double took = done.end_s - done.begin_s;
        const bool own = done.group == j;
        using Kind = Operation::Kind;
        // Sum over all chunks of one micro-batch: all micro-batches are alike.
        const bool counts = own && done.micro_batch == layout.micro_batches - 1;
        if (done.kind == Kind::forward && counts) seen.fwd_s += took;
        if (done.kind == Kind::backward && counts) seen.bwd_s += took;
        if (done.kind == Kind::backward) last_backward = std::max(last_backward, done.end_s);
        if (done.kind == Kind::optimizer && own) seen.optim_s = took;
        if (done.kind == Kind::gradients && own) reduced = done.end_s;
        if (done.kind == Kind::gather && own) gathered_s = took;
      }
      if (load.heads > 0) {
        const Device device{cluster.type(group.type), stage.tp,
                            hardware.of_type(group.type) * hardware.of_node(group.node)};
        const Passes head = head_passes(model, hardware.software, device, group.local_batch);
        seen.head_fwd_s = load.heads * head.forward_s;
        seen.head_bwd_s = load.heads * head.backward_s;
      }
      seen.commu_extra_s = stage.dp() > 1 ? std::max(0.0, reduced - last_backward) + gathered_s : 0;
      // A profiler only sees the part that launches do not hide.
      seen.fwd_commu_s = std::min(seen.fwd_commu_s, 0.9 * std::min(seen.fwd_s - seen.head_fwd_s,
                                                                   seen.bwd_s - seen.head_bwd_s));
      count_bytes(seen, layout, group, load, hardware);
      profile.groups.push_back(seen);
      if (load.heads > 0 && group.local_batch > 0)
        profile.last_activ_p_bytes =
            logits_bytes(model, stage.tp, group.local_batch) * stage.tp / group.local_batch;
    }
  }
  return profile;
}

}  // namespace swell::sim::judge
