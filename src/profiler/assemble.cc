// SPDX-License-Identifier: BSD-3-Clause
#include "profiler/assemble.h"

#include "core/count_of.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <utility>

namespace swell::profiler {

namespace {

/// Bytes of all ranks together: the whole state and gradients, the sharded part of each, and what
/// the ranks hold of the sharded state.
struct Shards {
  double state = 0, sharded = 0, held = 0, gradients = 0, sharded_gradients = 0;
  void add(const RankProfile& rank) {
    *this += {rank.layer_state_bytes + rank.extra_state_bytes, rank.sharded_state_bytes,
              rank.sharded_held_bytes, rank.layer_param_bytes + rank.extra_param_bytes,
              rank.sharded_gradient_bytes};
  }
  Shards& operator+=(const Shards& other) {
    state += other.state;
    sharded += other.sharded;
    held += other.held;
    gradients += other.gradients;
    sharded_gradients += other.sharded_gradients;
    return *this;
  }
};

}  // namespace

Result<plan::Plan> plan_of(const std::vector<PlacedRank>& ranks) {
  if (ranks.empty()) return Error("no rank has reported a profile");
  std::map<std::pair<int, int>, plan::TpGroup> groups;
  std::map<int, const Role*> stages;  // role of the first rank of each stage
  plan::Plan made;
  made.micro_batches = ranks.front().profile.micro_batches;
  for (const PlacedRank& rank : ranks) {
    const Role& role = rank.profile.role;
    const auto fail = [&](const std::string& what) {
      return Error(fmt::format("stage {}, group {}: {}", role.stage, role.group, what));
    };
    if (rank.profile.micro_batches != made.micro_batches)
      return fail(fmt::format("{} a step; another rank has {}",
                              count_of(rank.profile.micro_batches, "micro-batch"),
                              made.micro_batches));
    const Role& said = *stages.try_emplace(role.stage, &role).first->second;
    if (said.layers != role.layers)
      return fail(fmt::format("{}; another rank of the stage has {}",
                              count_of(role.layers, "layer"), said.layers));
    if (said.chunks != role.chunks)
      return fail(fmt::format("chunks of {} units; another rank of the stage has {}",
                              fmt::join(role.chunks, "+"), fmt::join(said.chunks, "+")));
    const auto [at, is_new] = groups.try_emplace(
        {role.stage, role.group}, plan::TpGroup{rank.node, rank.gpu_type, {}, role.local_batch});
    plan::TpGroup& group = at->second;
    if (group.node != rank.node)
      return fail(
          fmt::format("ranks on {} and on {}; a TP group is on one node", group.node, rank.node));
    if (group.local_batch != role.local_batch)
      return fail(fmt::format("{} of a micro-batch; another rank of the group has {}",
                              count_of(role.local_batch, "sample"), group.local_batch));
    group.gpus.insert(group.gpus.end(), rank.gpus.begin(), rank.gpus.end());
  }
  for (auto& [where, group] : groups) {
    const auto [stage, number] = where;
    std::sort(group.gpus.begin(), group.gpus.end());
    if (stage == made.pp())
      made.stages.push_back({stages[stage]->layers, 0, {}, stages[stage]->chunks});
    if (stage != made.pp() - 1 || number != made.stages.back().dp())
      return Error(
          fmt::format("stage {}, group {} reports, and one before it does not", stage, number));
    plan::Stage& of = made.stages.back();
    const auto tp = static_cast<int>(group.gpus.size());
    if (number == 0) of.tp = tp;
    if (of.tp != tp)
      return Error(fmt::format("stage {}, group {}: {}; group 0 has {}", stage, number,
                               count_of(tp, "GPU"), of.tp));
    of.groups.push_back(std::move(group));
  }
  for (const plan::Stage& stage : made.stages) {
    int samples = 0;
    for (const plan::TpGroup& group : stage.groups) samples += group.local_batch;
    if (samples != made.micro_batch_samples())
      return Error(fmt::format("stage {}: {} of a micro-batch; stage 0 has {}",
                               &stage - made.stages.data(), count_of(samples, "sample"),
                               made.micro_batch_samples()));
  }
  if (auto good = made.check_chunks(); !good) return good.error();
  made.drop_plain_chunks();
  return made;
}

namespace {

/// Adds a rank's nodes to those of its group: sums the times, and keeps the largest spread and
/// change of memory. `ranks`: by node, the number of ranks that have it. Leaves out nodes of layers
/// that the plan does not have.
void add_nodes(std::vector<perf::NodeObservation>& nodes, std::vector<int>& ranks,
               const std::vector<perf::NodeObservation>& seen, int layers) {
  for (const perf::NodeObservation& one : seen) {
    if (std::int64_t{one.first_layer} + one.layers > layers) continue;
    const auto found = std::find_if(nodes.begin(), nodes.end(),
                                    [&](const auto& known) { return known.is_of(one); });
    if (found == nodes.end()) {
      if (nodes.size() == perf::kMaxNodes) continue;
      nodes.push_back(one);
      ranks.push_back(1);
      continue;
    }
    ++ranks[static_cast<std::size_t>(found - nodes.begin())];
    found->median_s += one.median_s;
    found->spread_s = std::max(found->spread_s, one.spread_s);
    if (std::abs(one.bytes) > std::abs(found->bytes)) found->bytes = one.bytes;
  }
}

}  // namespace

Result<perf::Profile> assemble(const plan::Plan& plan, const std::vector<RankProfile>& ranks) {
  if (ranks.empty()) return Error("no rank has reported a profile");
  perf::Profile made;
  made.plan = plan;
  made.takes_chunks = std::none_of(ranks.begin(), ranks.end(),
                                   [](const auto& rank) { return rank.role.chunks.empty(); });
  struct Sum {
    perf::GroupObservation seen;
    int ranks = 0;
    std::vector<int> node_ranks;  ///< number of ranks that have seen each node
  };
  int layers = 0;
  for (const plan::Stage& stage : plan.stages) layers += stage.layers;
  std::map<std::pair<int, int>, Sum> groups;
  std::map<int, Shards> shards;  // by stage
  for (const RankProfile& rank : ranks) {
    const auto [stage, group] = std::pair{rank.role.stage, rank.role.group};
    if (stage < 0 || stage >= plan.pp() || group < 0 ||
        group >= plan.stages[static_cast<std::size_t>(stage)].dp())
      return Error(fmt::format("a rank reports as stage {}, group {}; the plan has no such group",
                               stage, group));
    if (rank.micro_batches != plan.micro_batches)
      return Error(fmt::format("stage {}, group {} reports {} a step; the plan has {}", stage,
                               group, count_of(rank.micro_batches, "micro-batch"),
                               plan.micro_batches));
    if (rank.role.layers != plan.stages[static_cast<std::size_t>(stage)].layers)
      return Error(fmt::format("stage {}, group {} reports {}; the plan has {} there", stage, group,
                               count_of(rank.role.layers, "layer"),
                               plan.stages[static_cast<std::size_t>(stage)].layers));
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
    seen.weights_s += rank.times.weights_s;
    add_nodes(seen.nodes, sum.node_ranks, rank.nodes, layers);
    seen.layer_param_bytes = std::max(seen.layer_param_bytes, rank.layer_param_bytes);
    seen.layer_state_bytes = std::max(seen.layer_state_bytes, rank.layer_state_bytes);
    seen.extra_param_bytes = std::max(seen.extra_param_bytes, rank.extra_param_bytes);
    seen.extra_state_bytes = std::max(seen.extra_state_bytes, rank.extra_state_bytes);
    seen.peak_bytes = std::max(seen.peak_bytes, rank.peak_bytes);
    shards[stage].add(rank);
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
                         &seen.commu_extra_s, &seen.head_fwd_s, &seen.head_bwd_s, &seen.weights_s})
      *time /= sum.ranks;
    for (std::size_t i = 0; i < seen.nodes.size(); ++i) seen.nodes[i].median_s /= sum.node_ranks[i];
    // Separate medians may exceed those of a backward pass that computes little else.
    if (seen.weights_s >= seen.bwd_s) seen.weights_s = 0;
    // A program may mark synchronizations that a group of one rank does not make; their measured
    // time means nothing.
    if (stage.tp == 1) seen.fwd_commu_s = 0;
    if (stage.dp() == 1) seen.commu_extra_s = 0;
    made.groups.push_back(seen);
  }
  Shards all;
  for (const auto& [stage, its] : shards) {
    all += its;
    // The shards of all replicas together are the whole, once for each copy of it, plus padding.
    const int dp = plan.stages[static_cast<std::size_t>(stage)].dp();
    const long copies = its.sharded > 0 ? std::lround(its.held * dp / its.sharded) : 1;
    if (copies <= 1) continue;
    const int degree = std::max(1, static_cast<int>(dp / copies));
    made.max_shards = made.max_shards > 0 ? std::min(made.max_shards, degree) : degree;
  }
  made.sharded_state = all.state > 0 ? std::min(1.0, all.sharded / all.state) : 0;
  made.sharded_gradients =
      all.gradients > 0 ? std::min(1.0, all.sharded_gradients / all.gradients) : 0;
  return made;
}

}  // namespace swell::profiler
