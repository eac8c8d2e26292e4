// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/fewest_first.h"

#include "core/policy/lending/owed.h"
#include "core/policy/lending/worker_by_worker.h"

namespace swell::policy {

Decisions FewestFirst::decide(const ClusterView& view) const {
  Room room(view);
  // The job with the most GPUs loses least by a reclaim; owed GPUs are reclaimed last.
  const Room::Loss loss = [&](const ElasticJobView& job, const CompanionView& companion) {
    return (is_owed(job, companion) ? kOwed : 0) - room.total(job);
  };
  std::vector<const ElasticJobView*> jobs;
  for (const ElasticJobView& job : view.jobs) jobs.push_back(&job);
  room.serve_queue(options_.queue_depth, loss, Room::Nodes::by_idle);
  reclaim_for_owed(room, jobs, loss);
  room.close();
  Decisions decisions;
  decisions.grants = lend_worker_by_worker(room, jobs, options_.min_growth);
  decisions.reclaims = room.reclaims();
  if (view.order_wanted) decisions.reclaim_order = room.reclaim_order(loss);
  return decisions;
}

}  // namespace swell::policy
