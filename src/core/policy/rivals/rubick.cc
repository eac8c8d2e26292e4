// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/rubick.h"

#include <algorithm>
#include <set>

#include "core/policy/rivals/elastic_shares.h"

namespace swell::policy {

namespace {

constexpr double kNoSlope = 1e300;

class Scheduling {
 public:
  Scheduling(const ClusterView& view, const std::vector<Contender>& jobs,
             const Rubick::Options& options, CurveCache& curves)
      : view_(view), options_(options), shares_(view, jobs, curves) {
    for (ElasticShare& share : shares_.all()) share.may_change = may_change(*share.job);
  }

  Decisions run() {
    start_pending();
    grow();
    reallocate();
    Decisions decisions;
    for (ElasticShare& share : shares_.all())
      if (share.changed) decide_plan(decisions, *share.job, std::move(share.layout));
    return decisions;
  }

 private:
  bool may_change(const Contender& job) const {
    if (!job.running) return !job.rigid;
    if (!job.movable) return false;
    const double runs_s = view_.now_s - job.started_s;
    return runs_s - job.reconfigurations * restart_s(job, *view_.machines) >=
           options_.reconfiguration * runs_s;
  }

  bool waits_long(const Contender& job) const {
    return view_.now_s - job.submitted_s > options_.queueing;
  }

  void start_pending() {
    std::vector<std::size_t> queue;
    for (std::size_t i = 0; i < shares_.all().size(); ++i)
      if (!shares_.all()[i].job->running) queue.push_back(i);
    std::stable_sort(queue.begin(), queue.end(), [&](std::size_t a, std::size_t b) {
      const bool long_a = waits_long(*shares_.all()[a].job),
                 long_b = waits_long(*shares_.all()[b].job);
      if (long_a != long_b) return long_a;
      return !long_a && first_slope(shares_.all()[a]) > first_slope(shares_.all()[b]);
    });
    for (std::size_t job : queue)
      for (int type = 0; type < static_cast<int>(view_.machines->types().size()); ++type)
        if (make_room_and_start(job, type)) break;
  }

  /// Returns the slope of the curve's first part: the user's throughput over the GPUs it takes.
  static double first_slope(const ElasticShare& share) {
    if (share.job->rigid) return 1.0 / share.job->asked;
    int min = 0;
    for (int type = 0; type < static_cast<int>(share.curves.size()); ++type)
      if (const int one = share.min_gpus(type); one > 0 && (min == 0 || one < min)) min = one;
    return min > 0 ? 1.0 / min : 0;
  }

  bool make_room_and_start(std::size_t job, int type) {
    const std::size_t mark = shares_.mark();
    const bool whatever_it_costs = waits_long(*shares_.all()[job].job);
    std::set<std::size_t> stuck;
    while (!shares_.start(job, type)) {
      const std::size_t victim = flattest(type, whatever_it_costs, stuck);
      if (victim == shares_.all().size()) {
        shares_.undo(mark);
        return false;
      }
      if (!shares_.shrink(victim)) stuck.insert(victim);
    }
    return true;
  }

  /// Returns the slope downwards: value lost with each GPU that the job would lose.
  static double slope_down(const ElasticShare& share) {
    const planner::SymmetricRow* below = share.below();
    if (!below || !share.model) return kNoSlope;
    return (share.value - below->throughput / share.users_throughput) /
           (planner::count(share.gpus) - below->gpus);
  }

  std::size_t flattest(int type, bool whatever_it_costs, const std::set<std::size_t>& stuck) {
    std::size_t best = shares_.all().size();
    double min = kNoSlope;
    for (std::size_t i = 0; i < shares_.all().size(); ++i) {
      const ElasticShare& share = shares_.all()[i];
      if (share.type() != type || !share.job->movable || !(share.may_change || whatever_it_costs) ||
          stuck.contains(i))
        continue;
      const double slope = slope_down(share);
      if (slope < min) min = slope, best = i;
    }
    return best;
  }

  struct Growth {
    std::size_t job = 0;
    const planner::SymmetricRow* target = nullptr;
    double slope = 0;
  };

  /// Returns the steepest growth that has not failed yet and takes at most `extra` busy GPUs.
  Growth steepest(int extra) {
    Growth best;
    for (std::size_t i = 0; i < shares_.all().size(); ++i) {
      const ElasticShare& share = shares_.all()[i];
      const Curve* curve = share.curve(share.type());
      if (!share.may_change || !curve || share.users_throughput <= 0) continue;
      const int now = planner::count(share.gpus),
                max = now + shares_.pool().free(share.type()) + extra;
      for (const planner::SymmetricRow& point : *curve) {
        if (point.gpus <= now || !share.job->may_have(point.gpus) ||
            failed_.contains({i, point.gpus}))
          continue;
        if (point.gpus > max) break;
        const double value = point.throughput / share.users_throughput;
        if (value < share.value * (1 + options_.min_gain)) continue;
        const double slope = (value - share.value) / (point.gpus - now);
        if (slope > best.slope) best = {i, &point, slope};
      }
    }
    return best;
  }

  void grow() {
    for (;;) {
      const Growth next = steepest(0);
      if (!next.target) return;
      if (!shares_.grow(next.job, *next.target, options_.min_gain))
        failed_.insert({next.job, next.target->gpus});
    }
  }

  /// Moves GPUs from the flattest to the steepest slope, as long as the sum of values rises.
  void reallocate() {
    for (std::size_t tries = 0; tries < shares_.all().size(); ++tries) {
      const Growth next = steepest(view_.machines->gpu_count());
      if (!next.target) return;
      const std::size_t mark = shares_.mark();
      const int type = shares_.all()[next.job].type();
      const int more = next.target->gpus - planner::count(shares_.all()[next.job].gpus);
      std::set<std::size_t> stuck = {next.job};
      double lost = 0;
      while (shares_.pool().free(type) < more) {
        const std::size_t victim = flattest(type, false, stuck);
        if (victim == shares_.all().size()) break;
        const double before = shares_.all()[victim].value;
        if (!shares_.shrink(victim)) stuck.insert(victim);
        lost += before - shares_.all()[victim].value;
        if (lost >= next.slope * more) break;
      }
      const double before = shares_.all()[next.job].value;
      const bool grown =
          lost < next.slope * more && shares_.grow(next.job, *next.target, options_.min_gain);
      if (grown && shares_.all()[next.job].value - before > lost) continue;
      shares_.undo(mark);
      failed_.insert({next.job, next.target->gpus});
    }
  }

  const ClusterView& view_;
  const Rubick::Options& options_;
  ElasticShares shares_;
  /// Job and GPUs of growths that brought no gain on the idle GPUs.
  std::set<std::pair<std::size_t, int>> failed_;
};

}  // namespace

Decisions Rubick::decide(const ClusterView& view) const {
  if (!view.machines) return {};
  const std::vector<Contender> jobs = contenders(view);
  return Scheduling(view, jobs, options_, curves_).run();
}

}  // namespace swell::policy
