// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/check_profile.h"

#include "core/count_of.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>

namespace swell::perf {

namespace {

/// Checks the signs of all values. `heads_alone`: the stage may have no layers.
Result<void> check_signs(const GroupObservation& seen, bool heads_alone) {
  const struct {
    const char* name;
    double value;
    bool may_be_zero;
  } values[] = {{"fwd_s", seen.fwd_s, false},
                {"fwd_commu_s", seen.fwd_commu_s, true},
                {"bwd_s", seen.bwd_s, false},
                {"optim_s", seen.optim_s, true},
                {"commu_extra_s", seen.commu_extra_s, true},
                {"layer_param_bytes", seen.layer_param_bytes, heads_alone},
                {"layer_state_bytes", seen.layer_state_bytes, heads_alone},
                {"extra_param_bytes", seen.extra_param_bytes, true},
                {"extra_state_bytes", seen.extra_state_bytes, true},
                {"head_fwd_s", seen.head_fwd_s, true},
                {"head_bwd_s", seen.head_bwd_s, true},
                {"weights_s", seen.weights_s, true},
                {"peak_bytes", seen.peak_bytes, false}};
  for (const auto& one : values) {
    if (!std::isfinite(one.value)) return Error(fmt::format("{} is not a finite number", one.name));
    if (one.value < 0 || (one.value == 0 && !one.may_be_zero))
      return Error(fmt::format("{} is {:g}; it must be {}", one.name, one.value,
                               one.may_be_zero ? "0 or more" : "above 0"));
  }
  return {};
}

/// Checks that the values agree with each other. `cp`: the plan's CP degree.
Result<void> check_sense(const GroupObservation& seen, const plan::Stage& stage, int cp) {
  if (stage.tp == 1 && seen.fwd_commu_s > 0)
    return Error(fmt::format("fwd_commu_s is {:g} although the TP degree is 1; it must be 0",
                             seen.fwd_commu_s));
  if (stage.layers > 0 && seen.head_fwd_s >= seen.fwd_s)
    return Error(fmt::format("head_fwd_s is {:g}; it must be below fwd_s, {:g}", seen.head_fwd_s,
                             seen.fwd_s));
  if (stage.layers > 0 && seen.head_bwd_s >= seen.bwd_s)
    return Error(fmt::format("head_bwd_s is {:g}; it must be below bwd_s, {:g}", seen.head_bwd_s,
                             seen.bwd_s));
  if (seen.weights_s > 0 && seen.weights_s >= seen.bwd_s)
    return Error(
        fmt::format("weights_s is {:g}; it must be below bwd_s, {:g}", seen.weights_s, seen.bwd_s));
  if (seen.fwd_commu_s >= seen.fwd_s)
    return Error(fmt::format("fwd_commu_s is {:g}; it must be below fwd_s, {:g}", seen.fwd_commu_s,
                             seen.fwd_s));
  if (seen.fwd_commu_s >= seen.bwd_s)
    return Error(fmt::format("bwd_s is {:g}; it must be above the TP communication, {:g}",
                             seen.bwd_s, seen.fwd_commu_s));
  if (stage.dp() == 1 && cp == 1 && seen.commu_extra_s > 0)
    return Error(fmt::format("commu_extra_s is {:g} although the DP degree is 1; it must be 0",
                             seen.commu_extra_s));
  return {};
}

/// Checks that each node is within the plan's layers, and that no two are the same.
Result<void> check_nodes(const GroupObservation& seen, int layers) {
  for (const NodeObservation& node : seen.nodes) {
    const std::string name = node.layers > 0
                                 ? fmt::format("node {} of {} from layer {} on", name_of(node.pass),
                                               count_of(node.layers, "layer"), node.first_layer)
                                 : fmt::format("node {}", name_of(node.pass));
    for (const auto& [member, value] :
         {std::pair{"median_s", node.median_s}, std::pair{"spread_s", node.spread_s}})
      if (!(value >= 0) || !std::isfinite(value))
        return Error(
            fmt::format("{}: {} is {:g}; it must be 0 or more, and finite", name, member, value));
    if (!std::isfinite(node.bytes)) return Error(fmt::format("{}: bytes is not finite", name));
    if (node.layers < 0 || (node.layers > 0 && node.first_layer < 0) ||
        std::int64_t{node.first_layer} + node.layers > layers)
      return Error(fmt::format("{}: the plan has {}", name, count_of(layers, "layer")));
    if (std::count_if(seen.nodes.begin(), seen.nodes.end(),
                      [&](const auto& other) { return node.is_of(other); }) > 1)
      return Error(fmt::format("{}: it is listed twice", name));
  }
  return {};
}

}  // namespace

Result<void> check(const Profile& profile, const cluster::Cluster& cluster) {
  if (profile.plan.stages.empty()) return Error("the profile's plan has no stages");
  if (profile.plan.micro_batches < 1) return Error("the profile's plan has no micro-batches");
  if (profile.groups.empty()) return Error("the profile observed no group");
  if (!(profile.activ_bytes > 0) || !std::isfinite(profile.activ_bytes))
    return Error(fmt::format("activ_bytes is {:g}; it must be above 0", profile.activ_bytes));
  if (!(profile.layer_launch_s >= 0) || !std::isfinite(profile.layer_launch_s))
    return Error(
        fmt::format("layer_launch_s is {:g}; it must be 0 or more", profile.layer_launch_s));
  if (!(profile.last_activ_p_bytes >= 0)) return Error("last_activ_p_bytes must be 0 or more");
  int layers = 0;
  for (const plan::Stage& stage : profile.plan.stages) layers += stage.layers;
  for (const GroupObservation& seen : profile.groups) {
    if (seen.stage < 0 || seen.stage >= profile.plan.pp())
      return Error(fmt::format("a group of stage {} was observed; the plan has {}", seen.stage,
                               count_of(profile.plan.pp(), "stage")));
    const plan::Stage& stage = profile.plan.stages[static_cast<std::size_t>(seen.stage)];
    const auto at = [&](const std::string& what) {
      return Error(fmt::format("stage {}: {}", seen.stage, what));
    };
    if (stage.layers < 1 && stage.units() < 1)
      return at(fmt::format("it has {}; at least 1 is needed", count_of(stage.layers, "layer")));
    if (stage.tp < 1) return at(fmt::format("its TP degree is {}; at least 1 is needed", stage.tp));
    if (seen.group < 0 || seen.group >= stage.dp())
      return at(fmt::format("group {} was observed; it has {}", seen.group, stage.dp()));
    const plan::TpGroup& group = stage.groups[static_cast<std::size_t>(seen.group)];
    const std::string where = fmt::format("stage {}, group {}", seen.stage, seen.group);
    if (group.local_batch < 1)
      return Error(
          fmt::format("{}: its local batch is {}; at least 1 is needed", where, group.local_batch));
    if (!find_type(cluster, group.gpu_type))
      return Error(fmt::format("{}: GPU type \"{}\" is not in cluster {}", where, group.gpu_type,
                               cluster.name()));
    if (auto good = check_signs(seen, stage.layers < 1); !good)
      return good.error().while_doing(where);
    if (auto good = check_sense(seen, stage, profile.plan.cp); !good)
      return good.error().while_doing(where);
    if (auto good = check_nodes(seen, layers); !good) return good.error().while_doing(where);
  }
  return {};
}

}  // namespace swell::perf
