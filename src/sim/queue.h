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
};

/// The order of the queue: who comes first among pending jobs.
class QueueOrder {
 public:
  virtual ~QueueOrder() = default;
  virtual bool before(const PendingJob& a, const PendingJob& b) const = 0;
};

/// "fifo": by submission; "sjf": by time limit, the shortest first.
Result<std::unique_ptr<QueueOrder>> make_queue_order(std::string_view name);

/// When the basic allocations of one node are expected to end.
struct Release {
  double at_s = 0;
  int node = 0;
  int gpus = 0;
};

/// Where a pending job should start now.
struct Start {
  policy::JobId id = 0;
  std::vector<int> nodes;
  int per_node = 0;
  bool idle = true;  ///< false: companions there have to leave first
};

/// The base scheduler: whole gangs in the queue's order; a job that cannot start is planned for the
/// moment at which, by the time limits, it can, and those behind it start where that is not
/// delayed: Slurm's backfill. Basic demand comes first: lent GPUs count as idle, though nodes where
/// enough are idle indeed are taken first, and among them the fullest; several nodes of one rack if
/// possible.
struct BaseScheduler {
  bool backfill = true;  ///< false: nothing starts before the head of the queue
  /// Jobs that are planned ahead; those behind only start where they disturb none.
  int max_planned = 20;

  /// `queue` in order. `releases`: of what runs now.
  std::vector<Start> plan(const std::vector<PendingJob>& queue, const Ledger& ledger,
                          const std::vector<Release>& releases, const cluster::Cluster& cluster,
                          double now_s) const;
};

}  // namespace swell::sim
