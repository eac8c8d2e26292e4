// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/plan/layout.h"
#include "core/policy/node_positions.h"
#include "core/policy/training.h"

namespace swell::policy {

/// A Slurm job id; 0 names no job.
using JobId = std::uint32_t;
/// An index into ClusterView::nodes.
using NodeIndex = int;

/// What one node has, or one job takes there. CPUs as Slurm counts them, memory in MiB.
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

/// One node that jobs may start on (up, not drained, not reserved). `gpu_type` is empty where the
/// site does not name its GPUs' type.
struct NodeView {
  std::string name;
  std::string gpu_type;
  Resources total;
  Resources free;
  /// Which of its GPUs are idle; as many as free.gpus where indices are known.
  plan::GpuMask free_gpus = 0;
  /// A job is just leaving it: what is free there can be used in a moment, not now.
  bool settling = false;
};

/// An expansion that a job holds: one companion job on one node.
struct CompanionView {
  JobId id = 0;
  NodeIndex node = -1;
  Resources held;
  plan::GpuMask gpus = 0;  ///< which ones
  bool leaving = false;    ///< reclaimed or preempted already: its GPUs come back soon
};

/// A running elastic job. Times as ClusterView::now_s.
struct ElasticJobView {
  JobId id = 0;
  int partition = 0;                      ///< index into ClusterView::partitions
  int basic_gpus = 0;                     ///< what the user asked for and holds
  int max_gpus = 0;                       ///< at most this many in all, basic ones included
  std::vector<int> sizes;                 ///< allowed totals, rising; empty: any
  std::vector<std::string> gpu_types;     ///< acceptable for expansions; empty: any
  Resources per_worker;                   ///< what one worker takes; gpus at least 1
  std::vector<NodeIndex> basic_nodes;     ///< where its own allocation is
  std::vector<NodeIndex> excluded_nodes;  ///< never lend there (the user's --exclude)
  bool may_grow = false;                  ///< an agent listens, no reconfiguration is under way
  /// No step is done yet: another plan costs the time since its start alone.
  bool starting = false;
  int reconfigurations = 0;  ///< changes of plan so far
  std::vector<CompanionView> companions;
  std::vector<plan::GpuMask> basic_gpu_masks;  ///< which GPUs of each of basic_nodes
  std::shared_ptr<const Training> training;    ///< null: nothing is known of what it trains
  double submitted_s = 0;
  double started_s = 0;
  double reconfigured_s = 0;  ///< last change of plan; its start where there was none

  int lent_gpus() const noexcept {
    int sum = 0;
    for (const CompanionView& companion : companions) sum += companion.held.gpus;
    return sum;
  }
};

/// A pending job's basic demand. Jobs that could not start whatever is free (held, dependent,
/// waiting for their begin time, over a limit) are not in the view.
struct PendingDemand {
  JobId id = 0;
  int partition = 0;
  int min_nodes = 1;
  int max_nodes = 1;
  Resources per_node;        ///< needed on each node
  Resources in_all;          ///< needed over all nodes together
  std::string gpu_type;      ///< empty: any
  bool whole_nodes = false;  ///< --exclusive
  std::vector<NodeIndex> required_nodes;
  std::vector<NodeIndex> excluded_nodes;
  /// Not 0: those of one number are parts of one job (a heterogeneous one): they start together,
  /// and no two of them on one node.
  JobId part_of = 0;
  std::shared_ptr<const Training> training;  ///< of an elastic job, where it is known
  double submitted_s = 0;
  int max_gpus = 0;  ///< may have up to this many where it runs; as many as it asks for: not
                     ///< elastic; 0: not known
};

/// What a policy sees: made by the controller from Slurm's records, or by the simulator.
/// Equal views give equal decisions.
struct ClusterView {
  std::vector<NodeView> nodes;
  std::vector<std::vector<NodeIndex>> partitions;  ///< nodes of each partition, rising
  std::vector<ElasticJobView> jobs;
  std::vector<PendingDemand> queue;  ///< highest priority first
  double now_s = 0;                  ///< seconds since any fixed moment
  /// The machines for planners, node by node as `nodes`; null where GPU types are not known.
  std::shared_ptr<const cluster::Cluster> machines;
  bool order_wanted = false;  ///< whether somebody reads Decisions::reclaim_order
  NodePositions positions;    ///< what is near what
};

}  // namespace swell::policy
