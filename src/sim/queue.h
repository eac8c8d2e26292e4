// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "sim/ledger.h"

namespace swell::sim {

/// A pending job as the base scheduler sees it.
struct PendingJob {
  policy::JobId id = 0;
  Spread demand;
  double submit_s = 0;
  double limit_s = 0;
  int gpu_type = 0;  ///< of the cluster's
};

/// Order of the queue: whether one pending job comes before another.
class QueueOrder {
 public:
  virtual ~QueueOrder() = default;
  virtual bool before(const PendingJob& a, const PendingJob& b) const = 0;
};

/// Makes the order called `name`. "fifo": by submission; "sjf": by time limit, the shortest first.
Result<std::unique_ptr<QueueOrder>> make_queue_order(std::string_view name);

/// Expected end of a basic allocation on one node.
struct Release {
  double at_s = 0;
  int node = 0;
  int gpus = 0;
};

/// Nodes on which a pending job should start now.
struct Start {
  policy::JobId id = 0;
  std::vector<int> nodes;
  int per_node = 0;
  bool idle = true;  ///< false: companions have to leave these nodes first
};

/// The base scheduler, with Slurm's backfill: starts whole gangs in the queue's order; plans a job
/// that cannot start for the moment at which, by the time limits, it can; starts later jobs where
/// that does not delay it. Basic demand comes first: lent GPUs count as idle, though nodes with
/// enough idle GPUs are taken first, and among them the fullest; several nodes are of one rack if
/// possible.
struct BaseScheduler {
  bool backfill = true;  ///< false: nothing starts before the head of the queue
  /// Number of jobs planned ahead; later jobs start only where they delay none of these.
  int max_planned = 20;

  /// Jobs to start now. `queue`: in its order. `releases`: ends of the allocations that run now.
  std::vector<Start> plan(const std::vector<PendingJob>& queue, const Ledger& ledger,
                          const std::vector<Release>& releases, const cluster::Cluster& cluster,
                          double now_s) const;
};

}  // namespace swell::sim
