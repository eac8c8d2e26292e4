// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/plan/layout.h"

#include <fmt/format.h>

#include "core/models/model.h"
#include "core/schedule/text.h"

namespace swell::plan {

Result<schedule::Schedule> schedule_of(const Layout& layout) {
  return schedule::schedule_for(layout.schedule,
                                {layout.pp(), layout.chunks(), layout.micro_batches});
}

Result<Layout> resolve(const Plan& plan, const cluster::Cluster& cluster) {
  Layout layout;
  layout.micro_batches = plan.micro_batches;
  layout.schedule = plan.schedule;
  for (const Stage& stage : plan.stages) {
    StageLayout resolved{stage.layers, stage.tp * plan.cp, {}, stage.chunks};
    for (const TpGroup& group : stage.groups) {
      const auto node = cluster.find_node(group.node);
      if (!node)
        return Error(fmt::format("node \"{}\" is not in cluster {}", group.node, cluster.name()));
      const auto type = find_type(cluster, group.gpu_type);
      if (!type)
        return Error(
            fmt::format("GPU type \"{}\" is not in cluster {}", group.gpu_type, cluster.name()));
      GpuMask mask = 0;
      for (int index : group.gpus) {
        if (index < 0 || index >= cluster::kMaxGpusPerNode)
          return Error(fmt::format("GPU {} is not on node {}", index, group.node));
        mask |= GpuMask{1} << index;
      }
      // A node with special links has its own variant of the GPU type, so take the index from the
      // node.
      const int own = group.gpus.empty() || static_cast<std::size_t>(group.gpus[0]) >=
                                                cluster.node(*node).gpus.size()
                          ? *type
                          : cluster.type_of({*node, group.gpus[0]});
      resolved.groups.push_back(
          {*node, cluster.type(own).name == group.gpu_type ? own : *type, group.local_batch, mask});
    }
    layout.stages.push_back(std::move(resolved));
  }
  return layout;
}

Plan name_all(const Layout& layout, const cluster::Cluster& cluster) {
  Plan plan;
  plan.micro_batches = layout.micro_batches;
  plan.schedule = layout.schedule;
  for (const StageLayout& stage : layout.stages) {
    Stage named{stage.layers, stage.tp, {}, stage.chunks};
    for (const GroupLayout& group : stage.groups) {
      TpGroup out{
          cluster.node(group.node).name, cluster.type(group.type).name, {}, group.local_batch};
      for (GpuMask rest = group.gpus; rest != 0; rest &= rest - 1)
        out.gpus.push_back(std::countr_zero(rest));
      named.groups.push_back(std::move(out));
    }
    plan.stages.push_back(std::move(named));
  }
  return plan;
}

Plan name_all(const Layout& layout, const cluster::Cluster& cluster, const models::Model& model) {
  Plan plan = name_all(layout, cluster);
  plan.cp = model.cp;
  plan.ep = model.ep;
  for (Stage& stage : plan.stages) stage.tp /= model.cp;
  return plan;
}

}  // namespace swell::plan
