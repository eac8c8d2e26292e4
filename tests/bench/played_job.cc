// SPDX-License-Identifier: GPL-2.0-or-later
#include "played_job.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "core/perf/performance_model.h"
#include "core/plan/validate.h"

using namespace swell;

namespace played {

namespace {

sim::GpuSet gpus_of(const std::vector<int>& node_of_rank, int ranks) {
  std::map<int, int> count;
  for (int rank = 0; rank < ranks; ++rank) ++count[node_of_rank[static_cast<std::size_t>(rank)]];
  sim::GpuSet set;
  for (const auto& [node, gpus] : count)
    set.push_back({node, sim::lowest(~plan::GpuMask{0}, gpus)});
  return set;
}

/// Returns the node of each rank if ranks follow the order of a plan: stage by stage, group by
/// group.
std::vector<int> nodes_in_order(const plan::Layout& layout) {
  std::vector<int> nodes;
  for (const plan::StageLayout& stage : layout.stages)
    for (const plan::GroupLayout& group : stage.groups)
      nodes.insert(nodes.end(), static_cast<std::size_t>(stage.tp), group.node);
  return nodes;
}

/// Returns the stage and group of `rank`: each group takes the first remaining ranks of its node.
std::optional<std::pair<int, int>> place_of(int rank, const plan::Layout& layout,
                                            const std::vector<int>& node_of_rank) {
  std::vector<bool> taken(node_of_rank.size(), false);
  for (int i = 0; i < layout.pp(); ++i) {
    const plan::StageLayout& stage = layout.stages[static_cast<std::size_t>(i)];
    for (int j = 0; j < stage.dp(); ++j) {
      int left = stage.tp;
      for (std::size_t r = 0; r < node_of_rank.size() && left > 0; ++r) {
        if (taken[r] || node_of_rank[r] != stage.groups[static_cast<std::size_t>(j)].node) continue;
        taken[r] = true;
        --left;
        if (static_cast<int>(r) == rank) return std::pair{i, j};
      }
    }
  }
  return std::nullopt;
}

profiler::RankProfile rank_profile(const perf::Profile& seen, const plan::Layout& layout,
                                   std::pair<int, int> place) {
  const auto [i, j] = place;
  const plan::StageLayout& stage = layout.stages[static_cast<std::size_t>(i)];
  profiler::RankProfile made;
  made.role = {i,
               j,
               stage.layers,
               stage.groups[static_cast<std::size_t>(j)].local_batch,
               seen.activ_bytes,
               seen.whole_activations.value_or(0),
               i == layout.pp() - 1 ? seen.last_activ_p_bytes : 0,
               seen.tied_embedding};
  made.micro_batches = layout.micro_batches;
  const auto own = std::find_if(seen.groups.begin(), seen.groups.end(), [&](const auto& group) {
    return group.stage == i && group.group == j;
  });
  made.times = {own->fwd_s,         own->fwd_commu_s, own->bwd_s,      own->optim_s,
                own->commu_extra_s, own->head_fwd_s,  own->head_bwd_s, seen.layer_launch_s};
  made.layer_param_bytes = own->layer_param_bytes;
  made.layer_state_bytes = own->layer_state_bytes;
  made.extra_param_bytes = own->extra_param_bytes;
  made.extra_state_bytes = own->extra_state_bytes;
  made.peak_bytes = own->peak_bytes;
  return made;
}

}  // namespace

Result<Job> Job::make(const Spec& spec, const cluster::Cluster& cluster) {
  const auto entry = models::find_model(spec.model);
  if (!entry) return entry.error();
  Job job(spec, cluster);
  job.type_ = std::make_unique<sim::JobType>();
  sim::JobType& type = *job.type_;
  type.model = std::make_shared<models::Model>(entry->model);
  type.expected =
      std::make_shared<perf::Coefficients>(perf::expected_coefficients(entry->model, cluster));
  type.gpus = spec.pp * spec.dp * spec.tp;
  type.pp = spec.pp, type.dp = spec.dp, type.tp = spec.tp;
  type.micro_batches = spec.micro_batches;
  job.truth_ = std::make_unique<sim::Truth>(type, cluster, spec.seed, spec.job);
  const auto gpus = sim::first_gpus(type.gpus, cluster, type.gpu_type);
  const auto basic = gpus ? sim::basic_layout(type, *gpus, cluster) : std::nullopt;
  if (!basic)
    return Error(fmt::format("{} has no plan of {} stages, DP {} and TP {} on {}", spec.model,
                             spec.pp, spec.dp, spec.tp, cluster.name()));
  job.iterations_ = spec.basic_s / job.truth_->iteration_s(*basic);
  return job;
}

Result<plan::Layout> Job::layout_of(const std::vector<int>& node_of_rank, int basic_ranks,
                                    const std::string& text) {
  if (!text.empty()) {
    const auto plan = plan::Plan::parse(text);
    if (!plan) return plan.error();
    if (auto good = plan::validate(*plan, *type_->model, *cluster_); !good) return good.error();
    return plan::resolve(*plan, *cluster_);
  }
  const int ranks = static_cast<int>(node_of_rank.size());
  auto basic = sim::basic_layout(
      *type_, gpus_of(node_of_rank, std::min({basic_ranks, type_->gpus, ranks})), *cluster_);
  const auto coefficients =
      basic && ranks > type_->gpus ? truth_->profile(*basic, 0) : type_->expected;
  if (basic && (ranks <= type_->gpus || coefficients == nullptr)) return *std::move(basic);
  auto found =
      sim::best_symmetric_layout(*type_, *coefficients, gpus_of(node_of_rank, ranks), *cluster_);
  const perf::PerformanceModel model(*type_->model, *cluster_, *coefficients);
  const auto expected_s = [&](const plan::Layout& layout) {
    return model.iteration_time(layout).total();
  };
  if (basic && (!found || expected_s(*found) >= expected_s(*basic))) return *std::move(basic);
  if (found) return *std::move(found);
  return Error(fmt::format("no plan of {} fits {} GPUs", spec_.model, ranks));
}

Result<Part> Job::part(int rank, const std::vector<int>& node_of_rank, int basic_ranks,
                       const std::string& plan) {
  const auto layout = layout_of(node_of_rank, basic_ranks, plan);
  if (!layout) return layout.error();
  if (!truth_->fits(*layout))
    return Error(
        fmt::format("out of memory under {}", plan::name_all(*layout, *cluster_).summary()));
  Part part;
  part.iteration_s = truth_->iteration_s(*layout);
  if (const auto place =
          place_of(rank, *layout, plan.empty() ? node_of_rank : nodes_in_order(*layout)))
    part.profile = rank_profile(truth_->observed(*layout), *layout, *place);
  return part;
}

}  // namespace played
