// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/placement_state.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <tuple>

namespace swell::policy {

namespace {

std::size_t at(NodeIndex node) { return static_cast<std::size_t>(node); }

}  // namespace

PlacementState::PlacementState(const ClusterView& view)
    : view_(&view), kept_(view.nodes.size(), 0) {
  free_.reserve(view.nodes.size());
  for (const NodeView& node : view.nodes) free_.push_back(node.free);
  soon_ = free_;
  lent_on_.resize(view.nodes.size());
  const auto is_free = [](const auto& job) { return job.sharing.is_free(); };
  all_share_ = std::all_of(view.jobs.begin(), view.jobs.end(), is_free) &&
               std::all_of(view.queue.begin(), view.queue.end(), is_free);
  for (const ElasticJobView& job : view.jobs) {
    total_[job.id] = job.basic_gpus + job.lent_gpus();
    for (const CompanionView& companion : job.companions) {
      if (companion.leaving) shrunk_.insert(job.id);
      if (companion.node < 0) continue;
      lent_.push_back({&job, &companion, companion.leaving});
      lent_on_[at(companion.node)].push_back(lent_.size() - 1);
      soon_[at(companion.node)] += companion.held;
    }
  }
}

void PlacementState::serve_queue(int depth, const Loss& loss, Nodes nodes,
                                 LastResort* last_resort) {
  depth = std::min(depth, static_cast<int>(view_->queue.size()));
  if (depth == 0) return;
  loss_ = &loss;
  std::vector<Share> shares;
  for (int i = 0; i < depth; ++i) {
    const PendingDemand& demand = view_->queue[static_cast<std::size_t>(i)];
    if (demand.part_of != 0) make_room_for_parts(demand.part_of, nodes);
    else if (!known_not_to_fit(demand) && !make_room(demand, nodes, shares)) {
      if (last_resort != nullptr) last_resort->make_room(*this, demand, nodes);
      does_not_fit_.push_back(&demand);
    }
  }
}

/// Serves all parts of a job at the queue position of its first part, each on nodes of its own;
/// serves none if not all of them fit, since the job cannot start then.
void PlacementState::make_room_for_parts(JobId job, Nodes nodes) {
  if (!served_in_parts_.insert(job).second) return;
  std::vector<PendingDemand> parts;
  for (const PendingDemand& each : view_->queue)
    if (each.part_of == job) parts.push_back(each);
  // Parts that fit on the fewest nodes choose first.
  std::stable_sort(parts.begin(), parts.end(), [](const PendingDemand& a, const PendingDemand& b) {
    auto choosiness = [](const PendingDemand& each) {
      return std::tuple(!each.required_nodes.empty(), !each.gpu_type.empty(),
                        std::max(each.per_node.gpus, each.in_all.gpus), each.per_node.cpus);
    };
    return choosiness(a) > choosiness(b);
  });
  auto keep_apart = [&](std::size_t from, const std::vector<Share>& taken) {
    for (std::size_t i = from; i < parts.size(); ++i)
      for (const Share& share : taken) parts[i].excluded_nodes.insert(share.node);
  };
  const PlacementState before(*this);
  std::vector<Share> shares;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!make_room(parts[i], nodes, shares)) {
      std::set<JobId> served = std::move(served_in_parts_);
      *this = before;
      served_in_parts_ = std::move(served);
      return;
    }
    keep_apart(i + 1, shares);
  }
}

bool PlacementState::make_room(const PendingDemand& demand, Nodes nodes,
                               std::vector<Share>& taken) {
  const auto is_there = [this](std::size_t index) { return !counted_.contains(index); };
  if (auto shares = place(demand, *view_, free_, {}, closed_to(demand, is_there))) {
    keep(*shares, demand);
    taken = std::move(*shares);
    return true;
  }
  const NodeSet closed =
      closed_to(demand, [this](std::size_t index) { return !lent_[index].reclaimed; });
  // Next, take what others already give back: a further reclaim would be useless.
  auto shares = place(demand, *view_, with_leaving(), {}, closed);
  // The job fits only on idle and lent resources together.
  if (!shares)
    shares = view_->preemption == Preemption::as_reclaimed ? place_on_lent(demand, nodes, closed)
                                                           : place_as_slurm(demand, closed);
  // Last, clear nodes of companions beside which Slurm does not run the job. Slurm leaves such
  // nodes out before it considers preemption, so that it preempts nothing there.
  if (!shares && !closed.empty())
    shares = place_on_lent(demand, nodes, closed_to(demand, [](std::size_t) { return false; }));
  if (!shares) return false;
  for (const Share& share : *shares) reclaim_on(share, demand);
  keep(*shares, demand);
  taken = std::move(*shares);
  return true;
}

bool PlacementState::is_kept_from(const Sharing& sharing, NodeIndex node) const {
  const auto kept = kept_for_.find(node);
  return kept != kept_for_.end() &&
         std::any_of(kept->second.begin(), kept->second.end(),
                     [&](const Sharing& each) { return !may_share(each, sharing); });
}

template <typename Stays>
NodeSet PlacementState::closed_to(const PendingDemand& demand, const Stays& stays) const {
  NodeSet closed;
  if (all_share_) return closed;
  for (const auto& [node, kept] : kept_for_)
    if (is_kept_from(demand.sharing, node)) closed.insert(node);
  for (std::size_t index = 0; index < lent_.size(); ++index)
    if (!may_share(lent_[index].job->sharing, demand.sharing) && stays(index))
      closed.insert(lent_[index].companion->node);
  return closed;
}

std::optional<std::vector<Share>> PlacementState::place_on_lent(const PendingDemand& demand,
                                                                Nodes nodes,
                                                                const NodeSet& closed) const {
  std::vector<NodeIndex> order = view_->partitions[at(demand.partition)];
  if (nodes == Nodes::by_idle) {
    std::stable_sort(order.begin(), order.end(), [&](NodeIndex a, NodeIndex b) {
      return free_[at(a)].gpus > free_[at(b)].gpus;
    });
  } else {
    std::vector<double> loss(view_->nodes.size());
    for (NodeIndex node : order) loss[at(node)] = loss_on(node, demand.per_node);
    std::stable_sort(order.begin(), order.end(),
                     [&](NodeIndex a, NodeIndex b) { return loss[at(a)] < loss[at(b)]; });
  }
  return place(demand, *view_, soon_, order, closed);
}

/// Returns the nodes where the job starts once Slurm has preempted the fewest companions, in its
/// own order, that make it fit (cons_tres: docs/topology.md).
std::optional<std::vector<Share>> PlacementState::place_as_slurm(const PendingDemand& demand,
                                                                 const NodeSet& closed) const {
  std::vector<std::size_t> order(lent_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t index) { return lent_[index].reclaimed; });
  order = by_preemption(std::move(order));
  const std::vector<Resources> leaving = with_leaving();
  auto placed_without = [&](std::size_t count) {
    std::vector<Resources> available = leaving;
    for (std::size_t i = 0; i < count; ++i)
      available[at(lent_[order[i]].companion->node)] += lent_[order[i]].companion->held;
    return place(demand, *view_, available, {}, closed);
  };
  auto found = placed_without(order.size());
  if (!found) return found;
  std::size_t too_few = 0, enough = order.size();  // make_room() has tried 0
  while (enough - too_few > 1) {
    const std::size_t middle = too_few + (enough - too_few) / 2;
    if (auto placed = placed_without(middle)) {
      found = std::move(placed);
      enough = middle;
    } else too_few = middle;
  }
  return found;
}

/// Returns whether a demand that is not larger has already not fitted. Then this one does not fit
/// either, since each pending job leaves less.
bool PlacementState::known_not_to_fit(const PendingDemand& demand) const {
  return std::any_of(does_not_fit_.begin(), does_not_fit_.end(), [&](const PendingDemand* smaller) {
    return demand.partition == smaller->partition && demand.gpu_type == smaller->gpu_type &&
           demand.min_nodes >= smaller->min_nodes && demand.max_nodes <= smaller->max_nodes &&
           demand.per_node.covers(smaller->per_node) && demand.in_all.covers(smaller->in_all) &&
           demand.whole_nodes == smaller->whole_nodes && smaller->required_nodes.empty() &&
           (all_share_ || demand.sharing == smaller->sharing) &&
           (smaller->excluded_nodes.empty() ||
            smaller->excluded_nodes.shares_with(demand.excluded_nodes));
  });
}

/// Subtracts a pending job's shares from both counts, so that neither a grant nor another pending
/// job gets them. `free_` may fall below what is really idle: then nothing is lent there.
void PlacementState::keep(const std::vector<Share>& shares, const PendingDemand& demand) {
  for (const Share& share : shares) {
    free_[at(share.node)] -= share.taken;
    soon_[at(share.node)] -= share.taken;
    kept_[at(share.node)] += share.taken.gpus;
    if (!all_share_) kept_for_[share.node].push_back(demand.sharing);
  }
}

/// Returns `free_` as if all that is reclaimed so far had left.
std::vector<Resources> PlacementState::with_leaving() const {
  std::vector<Resources> free = free_;
  for (std::size_t index = 0; index < lent_.size(); ++index)
    if (lent_[index].reclaimed && !counted_.contains(index))
      free[at(lent_[index].companion->node)] += lent_[index].companion->held;
  return free;
}

std::vector<std::size_t> PlacementState::by_loss(NodeIndex node) const {
  std::vector<std::size_t> here = lent_on_[at(node)];
  std::stable_sort(here.begin(), here.end(),
                   [&](std::size_t a, std::size_t b) { return loss_of(a) < loss_of(b); });
  return here;
}

std::vector<std::size_t> PlacementState::by_preemption(std::vector<std::size_t> lent) const {
  const bool youngest_first = view_->preemption == Preemption::youngest_first;
  std::sort(lent.begin(), lent.end(), [&](std::size_t a, std::size_t b) {
    const JobId first = lent_[a].companion->id, second = lent_[b].companion->id;
    return youngest_first ? first > second : first < second;
  });
  return lent;
}

std::vector<std::size_t> PlacementState::reclaimed_first(NodeIndex node) const {
  return view_->preemption == Preemption::as_reclaimed ? by_loss(node)
                                                       : by_preemption(lent_on_[at(node)]);
}

/// Returns the sum of losses by the reclaims that make `needed` idle on the node; infinity if that
/// is not possible.
double PlacementState::loss_on(NodeIndex node, const Resources& needed) const {
  Resources idle = free_[at(node)];
  for (std::size_t index : lent_on_[at(node)])
    if (lent_[index].reclaimed && !counted_.contains(index)) idle += lent_[index].companion->held;
  double sum = 0;
  for (std::size_t index : by_loss(node)) {
    if (idle.covers(needed)) break;
    if (lent_[index].reclaimed) continue;
    idle += lent_[index].companion->held;
    sum += std::max(loss_of(index), 0.0) * lent_[index].companion->held.gpus;
  }
  return idle.covers(needed) ? sum : std::numeric_limits<double>::infinity();
}

/// Reclaims companions on a node, in reclaimed_first()'s order, until its idle resources cover the
/// share, and all with which the job may not share the node. Companions that leave already count as
/// idle.
void PlacementState::reclaim_on(const Share& share, const PendingDemand& demand) {
  Resources idle = free_[at(share.node)];
  for (std::size_t index : lent_on_[at(share.node)])
    if (lent_[index].reclaimed) idle += count_on(index);
  for (const bool may_stay : {false, true})
    for (std::size_t index : reclaimed_first(share.node)) {
      if (may_stay && idle.covers(share.taken)) break;
      if (lent_[index].reclaimed ||
          may_share(lent_[index].job->sharing, demand.sharing) != may_stay)
        continue;
      reclaim(lent_[index], demand.id);
      idle += count_on(index);
    }
}

void PlacementState::reclaim(Lent& lent, JobId needed_by, Reclaim::Why why) {
  lent.reclaimed = true;
  total_[lent.job->id] -= lent.companion->held.gpus;
  shrunk_.insert(lent.job->id);
  reclaimed_.insert(lent.companion->id);
  reclaims_.push_back({lent.job->id, lent.companion->id, needed_by, why});
}

void PlacementState::reclaim(const ElasticJobView& job, const CompanionView& companion,
                             Reclaim::Why why) {
  if (companion.node < 0) return;
  for (const std::size_t index : lent_on_[at(companion.node)]) {
    Lent& lent = lent_[index];
    if (lent.job == &job && lent.companion == &companion && !lent.reclaimed) reclaim(lent, 0, why);
  }
}

/// Adds what a leaving companion returns to `free_`, and returns it; nothing the second time.
Resources PlacementState::count_on(std::size_t index) {
  if (!counted_.insert(index).second) return Resources{};
  const CompanionView& companion = *lent_[index].companion;
  free_[at(companion.node)] += companion.held;
  counted_nodes_.insert(companion.node);
  return companion.held;
}

void PlacementState::close() {
  // Leaving companions still use their GPUs: lend only what is idle.
  for (NodeIndex node : counted_nodes_) free_[at(node)].gpus = std::min(free_[at(node)].gpus, 0);
}

bool PlacementState::may_lend(const ElasticJobView& job, NodeIndex node,
                              const Resources& needed) const {
  if (view_->nodes[at(node)].settling || !free_[at(node)].covers(needed) || !may_use(job, node))
    return false;
  if (is_used_without(job, node, [](std::size_t) { return true; })) return false;
  const auto borrowers = borrowers_.find(node);
  return borrowers == borrowers_.end() ||
         std::all_of(borrowers->second.begin(), borrowers->second.end(), [&](const auto& each) {
           return each.second <= 0 || may_share(job.sharing, each.first->sharing);
         });
}

template <typename Stays>
bool PlacementState::is_used_without(const ElasticJobView& job, NodeIndex node,
                                     const Stays& stays) const {
  if (all_share_) return false;
  const std::vector<std::size_t>& here = lent_on_[at(node)];
  return std::any_of(here.begin(), here.end(), [&](std::size_t index) {
    return !may_share(job.sharing, lent_[index].job->sharing) && stays(index);
  });
}

bool PlacementState::may_use(const ElasticJobView& job, NodeIndex node,
                             const CompanionView* given_up) const {
  const NodeView& candidate = view_->nodes[at(node)];
  if (!job.gpu_types.empty() && std::find(job.gpu_types.begin(), job.gpu_types.end(),
                                          candidate.gpu_type) == job.gpu_types.end())
    return false;
  return !job.excluded_nodes.contains(node) && !job.closed_nodes.contains(node) &&
         !is_kept_from(job.sharing, node) && !is_used_without(job, node, [&](std::size_t index) {
           return !lent_[index].reclaimed && lent_[index].companion != given_up;
         });
}

bool PlacementState::shrinks(const ElasticJobView& job) const { return shrunk_.contains(job.id); }

void write_reclaims(PlacementState& placement, const PlacementState::Loss& loss,
                    Decisions& decisions) {
  decisions.reclaims = placement.reclaims();
  if (!placement.view().order_wanted) return;
  std::vector<std::pair<const ElasticJobView*, const CompanionView*>> lent;
  // Ties go to the lowest node, as for a pending job that any of them would suit.
  using Entry = std::tuple<double, NodeIndex, std::size_t>;  // loss, node, index into lent
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  std::vector<JobId>& order = decisions.reclaim_order;
  for (const ElasticJobView& job : placement.view().jobs)
    for (const CompanionView& companion : job.companions) {
      if (companion.node < 0) continue;
      if (companion.leaving || placement.is_reclaimed(companion.id)) {
        order.push_back(companion.id);
      } else {
        queue.emplace(loss(job, companion), companion.node, lent.size());
        lent.emplace_back(&job, &companion);
      }
    }
  while (!queue.empty()) {
    const auto [was, node, index] = queue.top();
    queue.pop();
    const auto [job, companion] = lent[index];
    // The loss has risen since companions of the same job were reclaimed.
    if (const double now = loss(*job, *companion); now > was) {
      queue.emplace(now, node, index);
      continue;
    }
    placement.reclaim(*job, *companion, Reclaim::Why::another_job);
    order.push_back(companion->id);
  }
}

}  // namespace swell::policy
