// SPDX-License-Identifier: BSD-3-Clause
#include "profiler/assemble.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <utility>

namespace swell::profiler {

Result<perf::Profile> assemble(const plan::Plan& plan, const std::vector<RankProfile>& ranks) {
  if (ranks.empty()) return Error("no rank has reported a profile");
  perf::Profile made;
  made.plan = plan;
  struct Sum {
    perf::GroupObservation seen;
    int ranks = 0;
  };
  std::map<std::pair<int, int>, Sum> groups;
  for (const RankProfile& rank : ranks) {
    const auto [stage, group] = std::pair{rank.role.stage, rank.role.group};
    if (stage < 0 || stage >= plan.pp() || group < 0 ||
        group >= plan.stages[static_cast<std::size_t>(stage)].dp())
      return Error(fmt::format("a rank reports as stage {}, group {}; the plan has no such group",
                               stage, group));
    if (rank.micro_batches != plan.micro_batches)
      return Error(
          fmt::format("stage {}, group {} reports {} micro-batches a step; the plan has {}", stage,
                      group, rank.micro_batches, plan.micro_batches));
    Sum& sum = groups[{stage, group}];
    perf::GroupObservation& seen = sum.seen;
    seen.stage = stage;
    seen.group = group;
    ++sum.ranks;
    seen.fwd_s += rank.times.fwd_s;
    seen.fwd_commu_s += rank.times.fwd_commu_s;
    seen.bwd_s += rank.times.bwd_s;
    seen.optim_s += rank.times.optim_s;
    seen.commu_extra_s += rank.times.commu_extra_s;
    seen.head_fwd_s += rank.times.head_fwd_s;
    seen.head_bwd_s += rank.times.head_bwd_s;
    seen.layer_param_bytes = std::max(seen.layer_param_bytes, rank.layer_param_bytes);
    seen.layer_state_bytes = std::max(seen.layer_state_bytes, rank.layer_state_bytes);
    seen.extra_param_bytes = std::max(seen.extra_param_bytes, rank.extra_param_bytes);
    seen.extra_state_bytes = std::max(seen.extra_state_bytes, rank.extra_state_bytes);
    seen.peak_bytes = std::max(seen.peak_bytes, rank.peak_bytes);
    made.activ_bytes = std::max(made.activ_bytes, rank.role.activ_bytes);
    made.last_activ_p_bytes = std::max(made.last_activ_p_bytes, rank.role.last_activ_p_bytes);
    made.layer_launch_s = std::max(made.layer_launch_s, rank.times.layer_launch_s);
    made.tied_embedding = made.tied_embedding || rank.role.tied_embedding;
    if (rank.role.whole_activations > 0) made.whole_activations = rank.role.whole_activations;
  }
  for (auto& [key, sum] : groups) {
    perf::GroupObservation& seen = sum.seen;
    const plan::Stage& stage = plan.stages[static_cast<std::size_t>(seen.stage)];
    for (double* time : {&seen.fwd_s, &seen.fwd_commu_s, &seen.bwd_s, &seen.optim_s,
                         &seen.commu_extra_s, &seen.head_fwd_s, &seen.head_bwd_s})
      *time /= sum.ranks;
    // A program may mark synchronizations that a group of one does not make; they have no time
    // worth a name.
    if (stage.tp == 1) seen.fwd_commu_s = 0;
    if (stage.dp() == 1) seen.commu_extra_s = 0;
    made.groups.push_back(seen);
  }
  return made;
}

}  // namespace swell::profiler
