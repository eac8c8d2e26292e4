// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/defragment.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace swell::policy {

namespace {

std::size_t at(NodeIndex node) { return static_cast<std::size_t>(node); }

/// Returns whether all GPUs of the job's own are on one node and its plan there is known.
bool can_move(const ElasticJobView& job) {
  return job.basic_nodes.size() == 1 && job.basic_gpu_masks.size() == 1 &&
         std::popcount(job.basic_gpu_masks[0]) == job.basic_gpus && job.training != nullptr &&
         job.training->coefficients != nullptr && !job.training->basic.stages.empty();
}

/// Returns the job's basic plan with each GPU of `from` replaced by the GPU of `to` of equal rank.
plan::Layout moved(const plan::Layout& basic, plan::GpuMask from, NodeIndex node,
                   plan::GpuMask to) {
  plan::Layout layout = basic;
  for (plan::StageLayout& stage : layout.stages)
    for (plan::GroupLayout& group : stage.groups) {
      plan::GpuMask gpus = 0, left = to;
      for (plan::GpuMask each = from; each != 0; each &= each - 1, left &= left - 1)
        if ((group.gpus & each & (~each + 1)) != 0) gpus |= left & (~left + 1);
      group.node = node;
      group.gpus = gpus;
    }
  return layout;
}

plan::GpuMask lowest(plan::GpuMask gpus, int wanted) {
  plan::GpuMask taken = 0;
  for (; wanted > 0 && gpus != 0; --wanted, gpus &= gpus - 1) taken |= gpus & (~gpus + 1);
  return taken;
}

}  // namespace

/// A job on a node that is to be cleared.
struct Defragmenter::Tenant {
  const ElasticJobView* job = nullptr;
  Resources held;
  NodeIndex home = -1;  ///< where it is moved
};

/// Returns movable jobs, with as few GPUs as possible, whose leaving makes `needed` available on
/// the node; none if that is not possible.
std::vector<Defragmenter::Tenant> Defragmenter::tenants_in_the_way(const PlacementState& state,
                                                                   NodeIndex node,
                                                                   const Resources& needed) {
  std::vector<Tenant> here;
  for (const ElasticJobView& job : state.view().jobs)
    if (can_move(job) && job.basic_nodes[0] == node)
      here.push_back({&job, job.per_worker * (job.basic_gpus / std::max(job.per_worker.gpus, 1))});
  std::stable_sort(here.begin(), here.end(),
                   [](const Tenant& a, const Tenant& b) { return a.held.gpus < b.held.gpus; });
  Resources available = state.soon_[at(node)];
  std::vector<Tenant> leaving;
  for (const Tenant& tenant : here) {
    if (available.covers(needed)) break;
    available += tenant.held;
    leaving.push_back(tenant);
  }
  if (!available.covers(needed)) return {};
  // The last and largest jobs may suffice without some of those before: keep these.
  std::erase_if(leaving, [&](const Tenant& tenant) {
    if (!(available - tenant.held).covers(needed)) return false;
    available -= tenant.held;
    return true;
  });
  return leaving;
}

void Defragmenter::make_room(PlacementState& state, const PendingDemand& demand,
                             PlacementState::Nodes nodes) {
  if (std::exchange(done_, true)) return;
  const ClusterView& view = state.view();
  if (demand.in_all.gpus > 0 || !demand.required_nodes.empty() || demand.per_node.gpus < 1) return;
  struct Candidate {
    NodeIndex node = -1;
    Resources needed;
    std::vector<Tenant> tenants;
    int moved = 0;
  };
  std::vector<Candidate> candidates;
  for (const NodeIndex node : view.partitions[at(demand.partition)]) {
    const NodeView& seen = view.nodes[at(node)];
    if (!demand.gpu_type.empty() && seen.gpu_type != demand.gpu_type) continue;
    if (demand.excluded_nodes.contains(node) || demand.closed_nodes.contains(node)) continue;
    Candidate each{node, demand.whole_nodes ? seen.total : demand.per_node, {}, 0};
    if (!state.soon_[at(node)].covers(each.needed)) {
      each.tenants = tenants_in_the_way(state, node, each.needed);
      if (each.tenants.empty()) continue;
    }
    for (const Tenant& tenant : each.tenants) each.moved += tenant.held.gpus;
    candidates.push_back(std::move(each));
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.moved < b.moved; });
  if (candidates.size() < static_cast<std::size_t>(demand.min_nodes)) return;

  // Take the nodes that cost least to clear, if all jobs there find another node.
  std::vector<Resources> left = state.soon_;
  std::vector<bool> cleared(view.nodes.size(), false);
  std::vector<Candidate*> chosen;
  for (Candidate& candidate : candidates) {
    if (static_cast<int>(chosen.size()) == demand.min_nodes) break;
    std::vector<Resources> tried = left;
    cleared[at(candidate.node)] = true;
    const bool all_housed = std::all_of(
        candidate.tenants.rbegin(), candidate.tenants.rend(), [&](const Tenant& tenant) {
          NodeIndex best = -1;
          for (const NodeIndex home : view.partitions[at(tenant.job->partition)])
            if (!cleared[at(home)] && tried[at(home)].covers(tenant.held) &&
                view.nodes[at(home)].gpu_type == view.nodes[at(candidate.node)].gpu_type &&
                (best < 0 || tried[at(home)].gpus < tried[at(best)].gpus))
              best = home;
          if (best < 0) return false;
          tried[at(best)] -= tenant.held;
          const_cast<Tenant&>(tenant).home = best;
          return true;
        });
    if (!all_housed) {
      cleared[at(candidate.node)] = false;
      continue;
    }
    left = std::move(tried);
    chosen.push_back(&candidate);
  }
  if (static_cast<int>(chosen.size()) < demand.min_nodes) return;

  std::vector<plan::GpuMask> idle;
  for (const NodeView& node : view.nodes) idle.push_back(node.free_gpus);
  for (const Candidate* candidate : chosen) {
    for (const Tenant& tenant : candidate->tenants) {
      const ElasticJobView& job = *tenant.job;
      const bool is_idle = state.free_[at(tenant.home)].covers(tenant.held) &&
                           std::popcount(idle[at(tenant.home)]) >= tenant.held.gpus;
      PendingDemand home;
      home.id = demand.id;
      home.partition = job.partition;
      home.per_node = tenant.held;
      home.required_nodes = {tenant.home};
      std::vector<Share> shares;
      state.make_room(home, nodes, shares);
      for (PlacementState::Lent& lent : state.lent_)
        if (lent.job == &job && !lent.reclaimed) state.reclaim(lent, demand.id);
      state.shrunk_.insert(job.id);  // it does not grow meanwhile
      if (!is_idle || job.moving || !job.companions.empty()) continue;
      const plan::GpuMask gpus = lowest(idle[at(tenant.home)], tenant.held.gpus);
      idle[at(tenant.home)] &= ~gpus;
      migrations_.push_back(
          {job.id, demand.id,
           moved(job.training->basic, job.basic_gpu_masks[0], tenant.home, gpus)});
    }
    state.keep({{candidate->node, candidate->needed}}, demand);
  }
}

}  // namespace swell::policy
