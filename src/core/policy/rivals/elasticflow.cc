// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/elasticflow.h"

#include <algorithm>

#include "core/policy/rivals/allocation_set.h"

namespace swell::policy {

namespace {

struct Share {
  const Contender* job = nullptr;
  std::vector<Configuration> ladder;  ///< its configurations on one GPU type, rising
  int step = -1;                      ///< index into the ladder of what it gets; -1: nothing

  const Configuration* now() const {
    return step < 0 ? nullptr : &ladder[static_cast<std::size_t>(step)];
  }
  int gpus() const { return step < 0 ? 0 : now()->gpus; }
};

/// Configurations on the GPU type that the job runs on; for a pending job, on the type that gives
/// most for each GPU and has room for the first step.
std::vector<Configuration> ladder_for(const Contender& job, const std::vector<Configuration>& all,
                                      const std::vector<int>& left) {
  std::vector<Configuration> best;
  for (const Configuration& first : all) {
    if (!best.empty() && first.type == best.front().type) continue;
    if (!job.held.empty() && first.type != job.held.front().type) continue;
    if (left[static_cast<std::size_t>(first.type)] < first.gpus) continue;
    if (!best.empty() &&
        first.throughput / first.gpus <= best.front().throughput / best.front().gpus)
      continue;
    best.clear();
    for (const Configuration& one : all)
      if (one.type == first.type) best.push_back(one);
  }
  return best;
}

/// Marginal return: throughput gained by each further GPU, in units of what each GPU of the
/// smallest share yields; below 1 by the GPU time that scaling costs. (A return for each job
/// instead would give all GPUs to the smallest jobs.)
double marginal_return(const Share& share) {
  const Configuration& now = *share.now();
  const Configuration& next = share.ladder[static_cast<std::size_t>(share.step) + 1];
  return (next.throughput - now.throughput) / share.ladder.front().throughput *
         share.ladder.front().gpus / (next.gpus - now.gpus);
}

void grow(std::vector<Share>& shares, std::vector<int>& left) {
  for (;;) {
    Share* best = nullptr;
    double max = 0;
    for (Share& share : shares) {
      if (share.step < 0 || share.step + 1 >= static_cast<int>(share.ladder.size())) continue;
      const Configuration& next = share.ladder[static_cast<std::size_t>(share.step) + 1];
      if (left[static_cast<std::size_t>(next.type)] < next.gpus - share.gpus()) continue;
      const double gain = marginal_return(share);
      if (gain > max) max = gain, best = &share;
    }
    if (!best) return;
    const int before = best->gpus();
    ++best->step;
    left[static_cast<std::size_t>(best->now()->type)] -= best->gpus() - before;
  }
}

}  // namespace

Decisions ElasticFlow::decide(const ClusterView& view) const {
  Decisions decisions;
  if (!view.machines) return decisions;
  const std::vector<Contender> jobs = contenders(view);
  GpuPool pool(view);
  std::vector<int> left;
  for (int type = 0; type < static_cast<int>(view.machines->types().size()); ++type)
    left.push_back(pool.free(type));
  for (const Contender& job : jobs)
    if (job.movable)
      for (const planner::Island& island : job.held)
        left[static_cast<std::size_t>(island.type)] += island.count();

  std::vector<Share> shares;
  for (const Contender& job : jobs) {
    if (!job.movable) continue;
    Share share{&job, ladder_for(job, configurations(job, view, pool, curves_), left), -1};
    if (!share.ladder.empty()) {
      share.step = 0;
      left[static_cast<std::size_t>(share.now()->type)] -= share.gpus();
    }
    shares.push_back(std::move(share));
  }
  grow(shares, left);

  std::vector<Wish> wishes;
  for (const Share& share : shares) {
    Wish wish{share.job, {}, false};
    for (int k = share.step; k >= 0; --k)
      wish.choices.push_back(share.ladder[static_cast<std::size_t>(k)]);
    if (const Configuration* now = share.now())
      wish.keeps = now->gpus == planner::count(share.job->held) &&
                   now->nodes == static_cast<int>(share.job->held.size());
    wishes.push_back(std::move(wish));
  }
  decide_plans(decisions, wishes, pool, view);
  return decisions;
}

}  // namespace swell::policy
