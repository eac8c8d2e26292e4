// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/plan/allocations.h"
#include "core/plan/layout.h"
#include "core/policy/node_positions.h"
#include "core/policy/node_set.h"
#include "core/policy/submissions.h"
#include "core/policy/training.h"
#include "core/redeploy/redeployment.h"

namespace swell::policy {

/// A Slurm job id; 0 names no job.
using JobId = std::uint32_t;

/// Resources of a node, or of a job on a node. CPUs as Slurm counts them, memory in MiB.
struct Resources {
  int gpus = 0;
  int cpus = 0;
  std::int64_t memory_mib = 0;

  bool covers(const Resources& other) const noexcept {
    return gpus >= other.gpus && cpus >= other.cpus && memory_mib >= other.memory_mib;
  }
  Resources& operator+=(const Resources& other) noexcept {
    gpus += other.gpus;
    cpus += other.cpus;
    memory_mib += other.memory_mib;
    return *this;
  }
  Resources& operator-=(const Resources& other) noexcept {
    gpus -= other.gpus;
    cpus -= other.cpus;
    memory_mib -= other.memory_mib;
    return *this;
  }
  Resources operator*(int times) const noexcept {
    return {gpus * times, cpus * times, memory_mib * times};
  }
  friend Resources operator+(Resources a, const Resources& b) noexcept { return a += b; }
  friend Resources operator-(Resources a, const Resources& b) noexcept { return a -= b; }
  friend bool operator==(const Resources&, const Resources&) = default;
};

/// One node that jobs may start on (up, not drained, not reserved). `gpu_type` is empty if the site
/// does not name its GPUs' type.
struct NodeView {
  std::string name;
  std::string gpu_type;
  Resources total;
  Resources free;
  /// Mask of the idle GPUs; as many as free.gpus if indexes are known.
  plan::GpuMask free_gpus = 0;
  /// Whether a job is just leaving the node: its free resources are usable soon, not now.
  bool settling = false;
};

/// How a job shares nodes with other jobs.
struct Sharing {
  std::int64_t owner = -1;  ///< uid; below 0: not known
  /// Whether only jobs of its owner run on its nodes: --exclusive=user, or a partition with
  /// ExclusiveUser.
  bool sole_user = false;
  std::string label;  ///< only jobs of this label of Slurm's MCS plugin run on its nodes
  /// Returns whether the job may start beside any other.
  bool is_free() const noexcept { return !sole_user && label.empty(); }
  friend bool operator==(const Sharing&, const Sharing&) = default;
  friend auto operator<=>(const Sharing&, const Sharing&) = default;
};

/// Returns whether Slurm runs both jobs on one node.
inline bool may_share(const Sharing& a, const Sharing& b) noexcept {
  return a.label == b.label && (a.owner == b.owner || (!a.sole_user && !b.sole_user));
}

/// An expansion that a job holds: one companion job on one node.
struct CompanionView {
  JobId id = 0;
  NodeIndex node = -1;
  Resources held;
  plan::GpuMask gpus = 0;  ///< mask of the GPUs held
  bool leaving = false;    ///< reclaimed or preempted already: its GPUs become free soon
  double benefit = -1;     ///< Grant::benefit of when it was lent; below 0: not known
};

/// Stands for "no deadline".
inline constexpr double kNoDeadline = std::numeric_limits<double>::infinity();

/// A running elastic job. Times are on the clock of ClusterView::now_s.
struct ElasticJobView {
  JobId id = 0;
  std::int64_t owner = -1;  ///< uid of its user; below 0: not known, and no other job's
  int partition = 0;        ///< index into ClusterView::partitions
  int basic_gpus = 0;       ///< GPUs that the user asked for and that the job holds
  int max_gpus = 0;         ///< limit of all its GPUs, basic ones included
  /// GPUs that the user wanted in all; more than basic_gpus of a job whose user consented to start
  /// and run with fewer. 0: no consent.
  int wanted_gpus = 0;
  std::vector<int> sizes;              ///< allowed totals, rising; empty: any
  std::vector<std::string> gpu_types;  ///< types acceptable for expansions; empty: any
  Resources per_worker;                ///< needs of one worker; at least 1 GPU
  std::vector<NodeIndex> basic_nodes;  ///< nodes of its own allocation
  NodeSet excluded_nodes;  ///< nodes never to lend on: the user's --exclude and --constraint
  Sharing sharing;         ///< how its companions share nodes
  /// Nodes of jobs beside which Slurm does not run its companions; other companions do not count.
  NodeSet closed_nodes;
  bool may_grow = false;  ///< its agent is connected, wants more, and may have it now
  /// A reconfiguration is under way or has just ended: only pending jobs may take its lent GPUs.
  bool changing = false;
  bool may_replan = false;  ///< it accepts another plan on the GPUs that it has
  bool moving = false;      ///< a change of plan is under way; read by the simulator's rivals
  /// Whether it has made no step yet: then a change of plan loses only the time since the start.
  bool starting = false;
  int reconfigurations = 0;  ///< changes of plan so far
  /// Expected cost of a change of plan, from measurements of the job, else of the cluster's jobs;
  /// nothing: none was measured, and the model of `method` applies.
  std::optional<redeploy::Cost> measured_cost;
  redeploy::Method method = redeploy::Method::local_reuse;  ///< how it changes its plan
  std::vector<CompanionView> companions;
  std::vector<plan::GpuMask> basic_gpu_masks;  ///< mask of the GPUs on each of basic_nodes
  std::shared_ptr<const Training> training;    ///< null: its training is not known
  double remaining_samples = -1;               ///< until the training ends; below 0: not known
  double deadline_s = kNoDeadline;             ///< time by which it should end
  /// Total of GPUs that keeps its deadline: owed to it after what jobs that consented to fewer are
  /// owed, by rising `left_s`. 0: it has no deadline, or no number keeps it. Set by the policies
  /// that consider deadlines, as is `left_s`, its time left at its present speed.
  int needed_gpus = 0;
  double left_s = 0;
  double submitted_s = 0;
  double started_s = 0;
  double reconfigured_s = 0;  ///< time of the last change of plan, or of its start before any
  /// Time for which it has held GPUs of each type; filled for policies that replace the base
  /// scheduler (Role).
  std::vector<double> held_s;

  int lent_gpus() const noexcept {
    int sum = 0;
    for (const CompanionView& companion : companions) sum += companion.held.gpus;
    return sum;
  }
};

/// Returns the job's allocations in the order in which it got them, if `machines` keep the devices
/// of allocations apart; otherwise none.
plan::Allocations allocations_of(const ElasticJobView& job, const cluster::Cluster* machines);

/// Returns the cost of going from the job's plan to plan `to`: the measured one if there is one,
/// else the model's. REQUIRES: its training is known.
redeploy::Cost cost_of_change(const ElasticJobView& job, const plan::Layout& to,
                              const cluster::Cluster& machines);

/// Basic demand of a pending job. Jobs that could not start even on idle nodes (held, dependent,
/// waiting for their begin time, over a limit) are not in the view.
struct PendingDemand {
  JobId id = 0;
  int partition = 0;
  int min_nodes = 1;
  int max_nodes = 1;
  Resources per_node;        ///< needs on each node
  Resources in_all;          ///< needs over all nodes together
  std::string gpu_type;      ///< empty: any
  bool whole_nodes = false;  ///< --exclusive
  NodeSet required_nodes;
  NodeSet excluded_nodes;
  Sharing sharing;
  NodeSet closed_nodes;  ///< nodes of jobs beside which Slurm does not run it; no companions count
  /// Job of which this is a part (a heterogeneous one), 0: none. All parts of a job start together,
  /// no two of them on one node.
  JobId part_of = 0;
  std::shared_ptr<const Training> training;  ///< of an elastic job; null: not known
  double submitted_s = 0;
  /// Limit of its GPUs once it runs; equal to what it asks for: not elastic; 0: not known.
  int max_gpus = 0;
  /// As in ElasticJobView; filled for policies that replace the base scheduler (Role).
  double remaining_samples = -1;
  double deadline_s = kNoDeadline;
  std::vector<double> held_s;
};

/// Maximum number of pending jobs, from the head of the queue, that policies consider. A live view
/// has no more, except for the other parts of heterogeneous jobs among them.
inline constexpr int kQueueDepth = 1000;

/// Order in which Slurm itself preempts companions, which all have one priority, for a pending job.
/// It preempts while reclaimed ones still leave: a policy that reclaims others then loses both.
enum class Preemption {
  as_reclaimed,   ///< as in Decisions::reclaim_order, by the select plugin; or Slurm preempts none
  oldest_first,   ///< Slurm's own order
  youngest_first  ///< the same with PreemptParameters=youngest_first
};

/// Input of a policy: made by the controller from Slurm's records, or by the simulator. Equal views
/// give equal decisions.
struct ClusterView {
  std::vector<NodeView> nodes;
  std::vector<std::vector<NodeIndex>> partitions;  ///< nodes of each partition, rising
  std::vector<ElasticJobView> jobs;
  std::vector<PendingDemand> queue;  ///< highest priority first; see kQueueDepth
  double now_s = 0;                  ///< time of the view, in seconds since any fixed moment
  /// Recent submissions, in order of time, at most kMaxSubmissions; null: none is known.
  std::shared_ptr<const std::vector<Submission>> submissions;
  /// The nodes as planners take them, indexed as `nodes`; null if GPU types are not known.
  std::shared_ptr<const cluster::Cluster> machines;
  Preemption preemption = Preemption::as_reclaimed;
  bool order_wanted = false;  ///< whether Decisions::reclaim_order is read
  NodePositions positions;    ///< distances between nodes
};

inline plan::Allocations allocations_of(const ElasticJobView& job, const ClusterView& view) {
  return allocations_of(job, view.machines.get());
}

}  // namespace swell::policy
