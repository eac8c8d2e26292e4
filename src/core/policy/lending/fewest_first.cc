// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/fewest_first.h"

#include "core/policy/lending/owed.h"
#include "core/policy/lending/worker_by_worker.h"

namespace swell::policy {

Decisions FewestFirst::decide(const ClusterView& view) const {
  PlacementState placement(view);
  // The job with the most GPUs loses least by a reclaim; owed GPUs are reclaimed last.
  const PlacementState::Loss loss = [&](const ElasticJobView& job, const CompanionView& companion) {
    return (is_owed(job, companion) ? kOwed : 0) - placement.total(job);
  };
  std::vector<const ElasticJobView*> jobs;
  for (const ElasticJobView& job : view.jobs) jobs.push_back(&job);
  placement.serve_queue(options_.queue_depth, loss, PlacementState::Nodes::by_idle);
  reclaim_for_owed(placement, jobs, loss);
  placement.close();
  Decisions decisions;
  decisions.grants = lend_worker_by_worker(placement, jobs, options_.min_growth);
  write_reclaims(placement, loss, decisions);
  return decisions;
}

}  // namespace swell::policy
