// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/owed.h"

#include <algorithm>
#include <optional>

#include "core/policy/lending/sizes.h"

namespace swell::policy {

namespace {

/// Reclaims of one decision for the GPUs that jobs are owed.
class Reclaiming {
 public:
  Reclaiming(PlacementState& placement, const PlacementState::Loss& loss)
      : placement_(placement), loss_(loss), soon_(placement.with_leaving()) {
    for (const ElasticJobView& job : placement.view().jobs) {
      const bool is_changing =
          job.changing || std::any_of(job.companions.begin(), job.companions.end(),
                                      [](const CompanionView& each) { return each.leaving; });
      if (is_changing) continue;
      for (const CompanionView& companion : job.companions)
        if (companion.node >= 0 && !placement.is_reclaimed(companion.id) &&
            !is_owed(job, companion))
          lent_.push_back({&job, &companion});
    }
  }

  /// Reclaims what the job is owed. REQUIRES: it is owed more than it has.
  void serve(const ElasticJobView& job) {
    const int owed = owed_beyond(job, placement_.total(job)).front().total;
    for (int total = placement_.total(job);;) {
      const int target = next_size(job, total);
      if (target == 0 || target > owed || !make_room(job, target - total)) return;
      total = target;
    }
  }

 private:
  struct Lent {
    const ElasticJobView* job;
    const CompanionView* companion;
    bool is_reclaimed = false;
  };

  /// Finds room for `gpus` more GPUs of the job, or changes nothing.
  bool make_room(const ElasticJobView& job, int gpus) {
    if (gpus % job.per_worker.gpus != 0) return false;
    std::vector<Resources> soon = soon_;
    std::vector<std::size_t> needed;
    int workers = gpus / job.per_worker.gpus;
    for (const NodeIndex node : placement_.view().partitions[at(job.partition)])
      if (placement_.may_use(job, node)) workers -= take(soon[at(node)], job.per_worker, workers);
    while (workers > 0) {
      const std::optional<std::size_t> next = least_loss(job, soon, needed);
      if (!next) return false;
      needed.push_back(*next);
      const CompanionView& companion = *lent_[*next].companion;
      Resources& there = soon[at(companion.node)];
      there += companion.held;
      workers -= take(there, job.per_worker, workers);
    }
    for (const std::size_t index : needed) {
      lent_[index].is_reclaimed = true;
      placement_.reclaim(*lent_[index].job, *lent_[index].companion,
                         why_owed(owed_since(job, placement_.total(job))));
    }
    soon_ = std::move(soon);
    return true;
  }

  /// Returns the companion of least loss without which its node could run one more worker.
  std::optional<std::size_t> least_loss(const ElasticJobView& job,
                                        const std::vector<Resources>& soon,
                                        const std::vector<std::size_t>& needed) const {
    const std::vector<NodeIndex>& partition = placement_.view().partitions[at(job.partition)];
    std::optional<std::size_t> best;
    double best_loss = 0;
    for (std::size_t index = 0; index < lent_.size(); ++index) {
      const auto& [lender, companion, is_reclaimed] = lent_[index];
      if (lender == &job || is_reclaimed ||
          std::find(needed.begin(), needed.end(), index) != needed.end() ||
          std::find(partition.begin(), partition.end(), companion->node) == partition.end() ||
          !placement_.may_use(job, companion->node, companion))
        continue;
      Resources there = soon[at(companion->node)];
      there += companion->held;
      if (const double loss = loss_(*lender, *companion);
          there.covers(job.per_worker) && (!best || loss < best_loss)) {
        best = index;
        best_loss = loss;
      }
    }
    return best;
  }

  /// Takes room for at most `max` workers. Returns for how many.
  static int take(Resources& placement, const Resources& worker, int max) {
    int taken = 0;
    for (; taken < max && placement.covers(worker); ++taken) placement -= worker;
    return taken;
  }

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  PlacementState& placement_;
  const PlacementState::Loss& loss_;
  std::vector<Resources> soon_;  ///< idle resources once all leaving companions have left
  std::vector<Lent> lent_;
};

}  // namespace

bool is_owed(const ElasticJobView& job, const CompanionView& companion) {
  int before = job.basic_gpus;
  for (const CompanionView& other : job.companions)
    if (other.id < companion.id) before += other.held.gpus;
  return before < owed_total(job);
}

void reclaim_for_owed(PlacementState& placement, const std::vector<const ElasticJobView*>& jobs,
                      const PlacementState::Loss& loss) {
  std::vector<const ElasticJobView*> owed;
  for (const ElasticJobView* job : jobs)
    if (job->may_grow && job->per_worker.gpus > 0 && !placement.shrinks(*job) &&
        owed_since(*job, placement.total(*job)) != kNever)
      owed.push_back(job);
  if (owed.empty()) return;
  std::stable_sort(owed.begin(), owed.end(), [&](const ElasticJobView* a, const ElasticJobView* b) {
    return owed_since(*a, placement.total(*a)) < owed_since(*b, placement.total(*b));
  });
  Reclaiming reclaiming(placement, loss);
  for (const ElasticJobView* job : owed)
    if (!placement.shrinks(*job)) reclaiming.serve(*job);
}

}  // namespace swell::policy
