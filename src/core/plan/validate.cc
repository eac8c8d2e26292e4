// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/plan/validate.h"

#include <fmt/format.h>
#include <set>

#include "core/count_of.h"
#include "core/models/chain.h"

namespace swell::plan {

namespace {

using cluster::Cluster;
using cluster::GpuRef;

class Check {
 public:
  Check(const Plan& plan, const models::Model& model, const Cluster& cluster)
      : plan_(plan), model_(model), cluster_(cluster) {}

  Result<void> run() {
    if (plan_.stages.empty()) return Error("the plan has no stages; at least 1 is needed");
    if (plan_.micro_batches < 1)
      return Error(fmt::format("the plan has {}; at least 1 is needed",
                               count_of(plan_.micro_batches, "micro-batch")));
    if (auto good = plan_.check_chunks(); !good) return good.error();
    if (auto good = plan_.check_schedule(); !good) return good.error();
    if (plan_.cp != model_.cp)
      return Error(
          fmt::format("its CP degree is {}, and model {} has {}, which stays: say \"cp\": {}",
                      plan_.cp, model_.name, model_.cp, model_.cp));
    if (plan_.ep != model_.ep && plan_.ep != 1)
      return Error(
          fmt::format("its EP degree is {}, and model {} has {}, which stays: say \"ep\": {}",
                      plan_.ep, model_.name, model_.ep, model_.ep));
    long layers = 0, units = 0;
    for (std::size_t i = 0; i < plan_.stages.size(); ++i) {
      if (auto good = stage(plan_.stages[i]); !good)
        return good.error().while_doing(fmt::format("stage {}", i));
      layers += plan_.stages[i].layers;
      units += plan_.stages[i].units();
    }
    if (layers != model_.layers)
      return Error(fmt::format("the stages have {} in all; model {} has {}",
                               count_of(layers, "layer"), model_.name, model_.layers));
    const long needed = models::Chain::units(model_.layers, model_.mtp_heads);
    if (plan_.has_chunks() && units != needed)
      return Error(fmt::format("its chunks have {}; model {} with {} and {} has {}",
                               count_of(units, "unit"), model_.name,
                               count_of(model_.layers, "layer"),
                               count_of(model_.mtp_heads, "MTP head"), needed));
    return {};
  }

 private:
  Result<void> stage(const Stage& stage) {
    if (stage.layers < 1 && stage.units() == 0)
      return Error(
          fmt::format("it has {}; every stage needs at least 1", count_of(stage.layers, "layer")));
    if (stage.groups.empty()) return Error("it has no TP groups; every stage needs at least 1");
    if (stage.tp < 1 || model_.heads % stage.tp != 0)
      return Error(fmt::format("its TP degree is {}; it must divide the {} of model {}", stage.tp,
                               count_of(model_.heads, "head"), model_.name));
    if (const long ranks = static_cast<long>(stage.dp()) * model_.cp; ranks % model_.ep != 0)
      return Error(fmt::format("EP {} does not divide the {} of DP {} and CP {}", model_.ep,
                               count_of(ranks, "rank"), stage.dp(), model_.cp));
    long samples = 0;
    for (std::size_t j = 0; j < stage.groups.size(); ++j) {
      if (auto good = group(stage.groups[j], stage.tp); !good)
        return good.error().while_doing(fmt::format("group {}", j));
      samples += stage.groups[j].local_batch;
    }
    if (samples * plan_.micro_batches != model_.global_batch)
      return Error(fmt::format(
          "its groups have {} of each of {}; together they must be the global batch of {}",
          count_of(samples, "sample"), count_of(plan_.micro_batches, "micro-batch"),
          model_.global_batch));
    return {};
  }

  Result<void> group(const TpGroup& group, int tp) {
    if (static_cast<long>(group.gpus.size()) != static_cast<long>(tp) * model_.cp)
      return Error(model_.cp == 1 ? fmt::format("it has {}; the stage's TP degree asks for {}",
                                                count_of(group.gpus.size(), "GPU"), tp)
                                  : fmt::format("it has {}; TP {} x CP {} are {}",
                                                count_of(group.gpus.size(), "GPU"), tp, model_.cp,
                                                static_cast<long>(tp) * model_.cp));
    if (group.local_batch < 1)
      return Error(fmt::format("its local batch is {}; every group needs at least 1 sample",
                               group.local_batch));
    const auto node = cluster_.find_node(group.node);
    if (!node)
      return Error(fmt::format("node \"{}\" is not in cluster {}", group.node, cluster_.name()));
    for (int index : group.gpus) {
      const auto& there = cluster_.node(*node).gpus;
      if (index < 0 || static_cast<std::size_t>(index) >= there.size())
        return Error(
            fmt::format("GPU {} is not on node {}, which has {}", index, group.node, there.size()));
      const std::string& type = cluster_.type(there[static_cast<std::size_t>(index)]).name;
      if (type != group.gpu_type)
        return Error(fmt::format("GPU {} of node {} is of type {}; the group is of type {}", index,
                                 group.node, type, group.gpu_type));
      if (!used_.insert(GpuRef{*node, index}).second)
        return Error(
            fmt::format("GPU {} of node {} is in two groups; it may be in one", index, group.node));
    }
    return {};
  }

  const Plan& plan_;
  const models::Model& model_;
  const Cluster& cluster_;
  std::set<GpuRef> used_;
};

}  // namespace

Result<void> validate(const Plan& plan, const models::Model& model, const Cluster& cluster) {
  return Check(plan, model, cluster).run();
}

}  // namespace swell::plan
