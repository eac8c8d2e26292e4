// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/flextrain.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "core/planner/incremental.h"
#include "core/planner/micro_batches.h"
#include "core/policy/lending/belief.h"
#include "core/policy/lending/expansions.h"
#include "core/policy/lending/owed.h"
#include "core/policy/lending/worker_by_worker.h"

namespace swell::policy {

namespace {

/// Limit of plans evaluated in one decision; a later decision makes the plans that are missing.
constexpr long kMaxEvaluated = 400'000;

/// State of one decision while it is made.
class Decision {
 public:
  Decision(const ClusterView& view, const FlexTrain::Options& options, const ScaleTables& tables)
      : view_(view),
        options_(options),
        filter_{options.window_s, static_cast<int>(options.arrival_gpus), options.chance},
        counted_(view.submissions ? counted(*view.submissions, filter_, view.now_s) : 0),
        tables_(tables),
        belief_(view, tables),
        placement_(view) {}

  Decisions run() {
    const PlacementState::Loss loss_of = [this](const ElasticJobView& job,
                                                const CompanionView& companion) {
      return loss(job, companion);
    };
    placement_.serve_queue(options_.queue_depth, loss_of, PlacementState::Nodes::by_loss);
    std::vector<const ElasticJobView*> jobs;
    for (const ElasticJobView& job : view_.jobs) jobs.push_back(&job);
    reclaim_for_owed(placement_, jobs, loss_of);
    placement_.close();
    Decisions decisions;
    decisions.grants = lend_what_is_owed(placement_, jobs);
    write_shrunk(placement_, tables_, decisions, &belief_);
    if (!waits_for_gpus()) lend(decisions);
    reschedule(decisions);
    write_reclaims(placement_, loss_of, decisions);
    return decisions;
  }

 private:
  /// Returns whether a pending job needs GPUs, or whole nodes, which may have GPUs.
  bool waits_for_gpus() const {
    return std::any_of(view_.queue.begin(), view_.queue.end(), [](const PendingDemand& demand) {
      return demand.per_node.gpus > 0 || demand.in_all.gpus > 0 || demand.whole_nodes;
    });
  }

  /// Makes the job that gained most lose least by a reclaim; owed GPUs are reclaimed last.
  double loss(const ElasticJobView& job, const CompanionView& companion) const {
    const double speedup = belief_.knows(job) ? belief_.now(job) / belief_.basic(job)
                                              : static_cast<double>(placement_.total(job)) /
                                                    std::max(job.basic_gpus, 1);
    return (is_owed(job, companion) ? kOwed : 0) - speedup;
  }

  /// Returns whether the job's growth to `speedup` times its speed likely pays; records it if not.
  bool likely_pays(const ElasticJobView& job, double speedup, double overhead_s,
                   Decisions& decisions) const {
    const double chance = chance_to_pay(counted_, filter_, speedup, overhead_s);
    if (chance >= filter_.chance) return true;
    decisions.unlikely.push_back({job.id, counted_, chance});
    return false;
  }

  void lend(Decisions& decisions) {
    const std::vector<Grant> owed = decisions.grants;
    Expansions expansions(placement_, tables_, &effort_, &belief_, options_.row_filter());
    for (const Grant& grant : owed) expansions.set_aside(grant.node, grant.lent.gpus);
    std::vector<Runner*> planned;
    for (Runner& runner : expansions.runners())
      if (!gets(owed, *runner.job)) planned.push_back(&runner);
    std::vector<const ElasticJobView*> others;
    for (const ElasticJobView& job : view_.jobs)
      if (!Expansions::can_plan(job, view_) && !gets(owed, job)) others.push_back(&job);
    std::sort(planned.begin(), planned.end(), [](const Runner* a, const Runner* b) {
      return std::tuple(a->total, a->job->id) < std::tuple(b->total, b->job->id);
    });
    for (Runner* runner : planned) {
      const std::optional<Expansion> offer = best_of(expansions, *runner);
      if (!offer) continue;
      const double overhead_s =
          cost_of_change(*runner->job, offer->scaling.layout(offer->row), *view_.machines).pause_s;
      if (likely_pays(*runner->job, offer->throughput / runner->throughput, overhead_s, decisions))
        expansions.lend(*runner, *offer);
    }
    expansions.write(decisions);
    lend_without_plans(others, decisions);
  }

  /// Tells jobs that are lent nothing to run a faster schedule if they last long enough for it.
  void reschedule(Decisions& decisions) {
    std::set<JobId> planned;
    for (const NewPlan& plan : decisions.plans) planned.insert(plan.job);
    for (const ElasticJobView& job : view_.jobs) {
      if (!job.may_replan || !job.companions.empty() || planned.contains(job.id) ||
          !belief_.knows(job) || gets(decisions.grants, job))
        continue;
      auto runner = rescheduled(job, placement_, belief_, &effort_);
      if (!runner) continue;
      const double times = runner->throughput / belief_.now(job);
      const double pause_s = cost_of_change(job, runner->layout, *view_.machines).pause_s;
      const double remaining = job.remaining_samples;
      if (remaining < 0 || remaining / belief_.now(job) > times / (times - 1) * pause_s)
        decisions.plans.push_back({job.id, std::move(runner->layout)});
    }
  }

  static bool gets(const std::vector<Grant>& grants, const ElasticJobView& job) {
    return std::any_of(grants.begin(), grants.end(),
                       [&](const Grant& grant) { return grant.job == job.id; });
  }

  /// Returns the size of highest throughput for which GPUs are idle, among the rows of the job's
  /// table that the filter keeps.
  std::optional<Expansion> best_of(Expansions& expansions, const Runner& runner) const {
    std::optional<Expansion> best;
    for (Expansion& offer : expansions.offers(runner, runner.job->max_gpus))
      if (offer.throughput > (best ? best->throughput : runner.throughput)) best = std::move(offer);
    return best;
  }

  /// Lends to jobs without a profile, assuming that they scale linearly.
  void lend_without_plans(const std::vector<const ElasticJobView*>& jobs, Decisions& decisions) {
    for (const Grant& grant : lend_worker_by_worker(placement_, jobs, options_.min_growth))
      found_[grant.job].push_back(grant);
    for (const auto& [id, grants] : found_) {
      const auto job = std::find_if(jobs.begin(), jobs.end(),
                                    [&](const ElasticJobView* one) { return one->id == id; });
      const int total = placement_.total(**job);
      int more = 0;
      for (const Grant& grant : grants) more += grant.lent.gpus;
      const double speedup = static_cast<double>(total + more) / std::max(total, 1);
      const redeploy::Cost start{0, redeploy::kInitialize_s};
      const double overhead_s =
          redeploy::within_model((*job)->measured_cost.value_or(start), start).pause_s;
      if (likely_pays(**job, speedup, overhead_s, decisions))
        decisions.grants.insert(decisions.grants.end(), grants.begin(), grants.end());
    }
  }

  const ClusterView& view_;
  const FlexTrain::Options& options_;
  ArrivalFilter filter_;
  int counted_;
  const ScaleTables& tables_;
  Belief belief_;
  Effort effort_{0, kMaxEvaluated};
  PlacementState placement_;
  std::map<JobId, std::vector<Grant>> found_;
};

std::unique_ptr<const planner::Solver> solver(const FlexTrain::Options& options) {
  planner::Incremental::Options incremental;
  incremental.fresh_gpus = 0;
  incremental.max_free = 1 << 20;
  std::unique_ptr<const planner::Solver> made = std::make_unique<planner::FewerMicroBatches>(
      std::make_unique<planner::Incremental>(incremental));
  if (!options.budget) return made;
  return std::make_unique<planner::Limited>(std::move(made), options.budget);
}

}  // namespace

FlexTrain::FlexTrain(Options options)
    : options_(std::move(options)), tables_(solver(options_), perf::Sends::counted) {}

Decisions FlexTrain::decide(const ClusterView& view) const {
  return Decision(view, options_, tables_).run();
}

}  // namespace swell::policy
