// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/policy/lending/packing.h"
#include "core/policy/policy.h"

namespace swell::policy {

class LastResort;

/// State of the cluster while one decision is made: what is idle, what is kept for pending jobs,
/// what is reclaimed. Basic demand comes first; what is left may be lent. Refers to the view.
class PlacementState {
 public:
  /// Loss to the cluster, for each GPU, if a companion is reclaimed. Companions of least loss are
  /// reclaimed first, except for pending jobs if Slurm preempts in an order of its own
  /// (ClusterView::preemption).
  using Loss = std::function<double(const ElasticJobView&, const CompanionView&)>;
  /// Order of the nodes on which a pending job is placed if idle GPUs alone do not suffice.
  enum class Nodes {
    by_idle,
    by_loss,  ///< by the sum of the losses of what would be reclaimed there
  };

  explicit PlacementState(const ClusterView& view);

  /// Keeps the resources on which the first `depth` pending jobs could start, in the queue's order,
  /// and reclaims companions if these are needed. Asks `last_resort` about jobs that fit nowhere.
  /// REQUIRES: called once, before anything is lent.
  void serve_queue(int depth, const Loss& loss, Nodes nodes, LastResort* last_resort = nullptr);
  /// Reclaims a companion that no pending job needs. Its resources are lent only once they are
  /// idle.
  void reclaim(const ElasticJobView& job, const CompanionView& companion, Reclaim::Why why);
  /// Counts the resources of leaving companions as busy from now on. REQUIRES: serve_queue() and
  /// every reclaim() are done, lend() has not run.
  void close();

  /// Returns whether `needed` may be lent to `job` on `node`: idle, not kept, not settling, of a
  /// GPU type that the job accepts, and not beside a job with which it may not share the node.
  bool may_lend(const ElasticJobView& job, NodeIndex node, const Resources& needed) const;
  /// Returns whether the job may be lent GPUs of the node at all, if they are idle; with
  /// `given_up`, once that companion has left.
  bool may_use(const ElasticJobView& job, NodeIndex node,
               const CompanionView* given_up = nullptr) const;
  void lend(const ElasticJobView& job, NodeIndex node, const Resources& lent) {
    free_[static_cast<std::size_t>(node)] -= lent;
    if (!all_share_) borrowers_[node][&job] += lent.gpus;
  }
  void undo(const ElasticJobView& job, NodeIndex node, const Resources& lent) {
    undo(node, lent);
    if (!all_share_) borrowers_[node][&job] -= lent.gpus;
  }
  void undo(NodeIndex node, const Resources& lent) {
    free_[static_cast<std::size_t>(node)] += lent;
  }
  /// Returns the resources idle and not kept for a pending job; below 0 if more are kept than idle.
  const Resources& free(NodeIndex node) const { return free_[static_cast<std::size_t>(node)]; }
  /// Returns free() of each node as if all leaving companions had left. REQUIRES: close() has not
  /// run.
  std::vector<Resources> with_leaving() const;

  /// Returns the number of GPUs of a job, without those reclaimed.
  int total(const ElasticJobView& job) const { return total_.at(job.id); }
  /// Returns whether any companion of the job is reclaimed, by this decision or an earlier one:
  /// such a job does not grow.
  bool shrinks(const ElasticJobView& job) const;
  bool is_reclaimed(JobId companion) const { return reclaimed_.contains(companion); }
  const std::vector<Reclaim>& reclaims() const noexcept { return reclaims_; }
  /// Returns the GPUs of the node kept for pending jobs, including those reclaimed for them.
  int kept_gpus(NodeIndex node) const { return kept_[static_cast<std::size_t>(node)]; }
  const ClusterView& view() const noexcept { return *view_; }

 private:
  friend class Defragmenter;  ///< the simulator's last resort, in rivals
  struct Lent {
    const ElasticJobView* job;
    const CompanionView* companion;
    bool reclaimed = false;
  };
  /// Keeps room for `demand`, with reclaims if needed; `shares` receives it. Returns whether there
  /// is room.
  bool make_room(const PendingDemand& demand, Nodes nodes, std::vector<Share>& shares);
  void make_room_for_parts(JobId job, Nodes nodes);
  std::optional<std::vector<Share>> place_on_lent(const PendingDemand& demand, Nodes nodes,
                                                  const NodeSet& closed) const;
  std::optional<std::vector<Share>> place_as_slurm(const PendingDemand& demand,
                                                   const NodeSet& closed) const;
  /// Returns the nodes that are kept for jobs, or used by companions of which `stays(index)` is
  /// true, with which the job may not share a node.
  template <typename Stays>
  NodeSet closed_to(const PendingDemand& demand, const Stays& stays) const;
  bool is_kept_from(const Sharing& sharing, NodeIndex node) const;
  /// Returns whether a companion on the node, of which `stays(index)` is true, may not share it
  /// with companions of the job.
  template <typename Stays>
  bool is_used_without(const ElasticJobView& job, NodeIndex node, const Stays& stays) const;
  bool known_not_to_fit(const PendingDemand& demand) const;
  void keep(const std::vector<Share>& shares, const PendingDemand& demand);
  std::vector<std::size_t> by_loss(NodeIndex node) const;
  /// Returns `lent`, indexes into lent_, in the order in which Slurm preempts.
  std::vector<std::size_t> by_preemption(std::vector<std::size_t> lent) const;
  /// Returns indexes into lent_ of a node's companions in the order of reclaims for a pending job.
  std::vector<std::size_t> reclaimed_first(NodeIndex node) const;
  double loss_of(std::size_t index) const {
    return (*loss_)(*lent_[index].job, *lent_[index].companion);
  }
  double loss_on(NodeIndex node, const Resources& needed) const;
  void reclaim_on(const Share& share, const PendingDemand& demand);
  void reclaim(Lent& lent, JobId needed_by, Reclaim::Why why = Reclaim::Why::another_job);
  Resources count_on(std::size_t index);

  const ClusterView* view_;
  const Loss* loss_ = nullptr;  ///< null except while the queue is served
  std::vector<Resources> free_;
  std::vector<Resources> soon_;  ///< `free_` as if every companion were reclaimed
  std::vector<Lent> lent_;
  std::vector<std::vector<std::size_t>> lent_on_;  ///< indexes into lent_, by node
  std::map<JobId, int> total_;
  std::set<JobId> shrunk_, reclaimed_;
  std::set<JobId> served_in_parts_;  ///< jobs that make_room_for_parts() was called for
  /// Leaving companions whose resources `free_` already has, as indexes into lent_; their nodes.
  std::set<std::size_t> counted_;
  std::set<NodeIndex> counted_nodes_;
  std::vector<const PendingDemand*> does_not_fit_;
  std::vector<Reclaim> reclaims_;
  std::vector<int> kept_;  ///< GPUs by node
  bool all_share_ = true;  ///< whether any two jobs may share a node
  // Used only if some jobs may not share a node:
  std::map<NodeIndex, std::vector<Sharing>> kept_for_;  ///< of pending jobs, by node kept for them
  /// GPUs lent by this decision.
  std::map<NodeIndex, std::map<const ElasticJobView*, int>> borrowers_;
};

/// Writes the reclaims; and, if ClusterView::order_wanted, the order in which every companion on a
/// known node would be reclaimed if all were needed: companions that already leave come first.
/// Consumes the placement state: nothing may be lent afterwards.
void write_reclaims(PlacementState& placement, const PlacementState::Loss& loss,
                    Decisions& decisions);

/// A further try for a pending job that fits neither on idle nor on lent GPUs. The controller has
/// none.
class LastResort {
 public:
  virtual ~LastResort() = default;
  virtual void make_room(PlacementState& state, const PendingDemand& demand,
                         PlacementState::Nodes nodes) = 0;
};

}  // namespace swell::policy
