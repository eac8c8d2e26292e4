// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/observe.h"

#include "core/perf/peak_memory.h"
#include "core/plan/chunks.h"

namespace swell::perf {

Profile observe(const plan::Layout& layout, const models::Model& model,
                const cluster::Cluster& cluster, const Coefficients& k) {
  const PerformanceModel perf(model, cluster, k);
  const MemoryModel memory(perf);
  Profile profile;
  profile.plan = plan::name_all(layout, cluster, model);
  profile.activ_bytes = k.activ_bytes;
  profile.whole_activations = k.activ_np_bytes / k.activ_bytes;
  profile.layer_launch_s = k.types.empty() ? 0 : k.types.front().launch_s;
  profile.tied_embedding = k.tied_embedding;
  profile.sharded_state = k.sharded_state;
  profile.sharded_gradients = k.sharded_gradients;
  profile.max_shards = k.max_shards;
  profile.last_activ_p_bytes = k.last.activ_p_bytes;
  const models::Chain& chain = perf.chain();
  const std::vector<models::Load> loads = plan::stage_loads(layout, chain);
  for (int i = 0; i < layout.pp(); ++i) {
    const auto& stage = layout.stages[static_cast<std::size_t>(i)];
    const models::Load& load = loads[static_cast<std::size_t>(i)];
    const double layers = load.layers + load.modules * chain.module_work();
    const double held = load.layers + load.modules * chain.module_parameters();
    const StageTimes times = perf.load_times(stage, load);
    for (int j = 0; j < stage.dp(); ++j) {
      const auto& group = stage.groups[static_cast<std::size_t>(j)];
      const TypeCoefficients& type = k.types[static_cast<std::size_t>(group.type)];
      const auto& gpu = cluster.type(group.type);
      const PerformanceModel::Passes layer =
          perf.layer_passes(group.type, stage.tp, group.local_batch);
      const int tp = stage.tp / model.cp;
      const double once = tp_transmission_bytes(k.activ_bytes, group.local_batch, tp);
      const double commu = type.launch_s > 0 && tp > 1
                               ? 2 * layers * allreduce_s(once, gpu.link_bytes_per_s)
                               : tp_commu_fwd(k.activ_bytes, group.local_batch, layers, tp,
                                              gpu.link_bytes_per_s, gpu.link_saturation_bytes);
      GroupObservation seen;
      seen.stage = i;
      seen.group = j;
      if (load.heads > 0)
        seen.head_fwd_s =
            tp_comp_fwd(type.comp_s, group.local_batch, k.head_layers * load.heads, stage.tp);
      seen.head_bwd_s = seen.head_fwd_s * type.backward;
      seen.fwd_s = layer.fwd * layers + seen.head_fwd_s;
      seen.fwd_commu_s = commu;
      seen.bwd_s = layer.bwd * layers + seen.head_bwd_s;
      seen.optim_s = type.optim_s * held * k.updated_part(stage.dp()) / stage.tp;
      seen.commu_extra_s = times.commu_extra + times.gather;
      seen.layer_param_bytes = k.param_bytes * held / stage.tp;
      seen.layer_state_bytes = k.param_optim_bytes * held / stage.tp;
      auto add = [&](const StageExtras& extras) {
        seen.extra_param_bytes += extras.param_bytes / stage.tp;
        seen.extra_state_bytes += extras.param_optim_bytes / stage.tp;
      };
      if (load.has_embedding()) add(k.first);
      if (load.has_output() && !(k.tied_embedding && load.has_embedding())) add(k.last);
      const PeakMemory peak = memory.group_peak(layout, i, group);
      seen.peak_bytes = peak.total() - peak.overhead;
      profile.groups.push_back(seen);
    }
  }
  return profile;
}

}  // namespace swell::perf
