// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/marginal_benefit.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "core/planner/incremental.h"
#include "core/policy/lending/expansions.h"
#include "core/policy/lending/gpu_sizes.h"
#include "core/policy/lending/owed.h"
#include "core/policy/lending/worker_by_worker.h"

namespace swell::policy {

namespace {

constexpr int kAnyNumber = 1 << 20;

/// Share of tau below which a lent expansion is reclaimed. Below 1, since predictions for one
/// expansion depend a little on the plans before it, and each change stops the training.
constexpr double kKept = 0.9;

/// Algorithm 1, with plans from scratch for up to two nodes, which Suika does not have. For more
/// nodes they would take two thirds of the time; for up to two, a job without them can stay at 0.87
/// of the optimum.
std::unique_ptr<const planner::Solver> incremental(int max_free) {
  planner::Incremental::Options options;
  options.fresh_gpus = 16;
  options.max_free = max_free;
  return std::make_unique<planner::Incremental>(options);
}

/// State of one decision while it is made.
class Decision {
 public:
  Decision(const ClusterView& view, const MarginalBenefit::Options& options,
           const ScaleTables& growing, const ScaleTables& grown)
      : view_(view), options_(options), growing_(growing), grown_(grown), placement_(view) {}

  Decisions run(LastResort* last_resort, MarginalBenefit::Searched& searched) {
    for (const ElasticJobView& job : view_.jobs)
      if (!all_recorded(job)) steps_[job.id] = steps(job, grown_, view_);
    const PlacementState::Loss loss_of = [this](const ElasticJobView& job,
                                                const CompanionView& companion) {
      return loss(job, companion);
    };
    placement_.serve_queue(options_.queue_depth, loss_of, PlacementState::Nodes::by_loss,
                           last_resort);
    const double tau = threshold();
    reclaim_below(tau);
    std::vector<const ElasticJobView*> others;
    for (const ElasticJobView& job : view_.jobs)
      if (!Expansions::can_plan(job, view_)) others.push_back(&job);
    reclaim_for_owed(placement_, others, loss_of);
    placement_.close();
    Decisions decisions;
    decisions.grants = lend_what_is_owed(placement_, others);
    const std::vector<Grant> owed = decisions.grants;
    Expansions expansions(placement_, growing_);
    for (const Grant& grant : owed) expansions.set_aside(grant.node, grant.lent.gpus);
    scale_out(expansions, tau);
    expansions.write(decisions);
    write_shrunk(placement_, grown_, decisions);
    lend_more(std::move(others), owed, decisions);
    write_reclaims(placement_, loss_of, decisions);
    searched = {expansions.max_evaluated(), expansions.ran_out()};
    return decisions;
  }

 private:
  /// Returns whether each companion has the benefit with which it was lent (Suika 3.2.3: a history
  /// of all scale-outs). Others were lent before the job had a profile, or by another policy.
  static bool all_recorded(const ElasticJobView& job) {
    return std::all_of(job.companions.begin(), job.companions.end(),
                       [](const CompanionView& companion) { return companion.benefit >= 0; });
  }

  double loss(const ElasticJobView& job, const CompanionView& companion) const {
    const double owed = is_owed(job, companion) ? kOwed : 0;
    if (companion.benefit >= 0) return owed + companion.benefit;
    const auto found = steps_.find(job.id);
    if (found != steps_.end())
      for (const Step& step : found->second)
        if (step.companion == &companion) return owed + step.benefit;
    return owed;  // without a profile: lost before the profiled ones
  }

  /// Returns the threshold tau = U^lambda, where U is the share of all GPUs under basic demand,
  /// including pending jobs that are about to start.
  double threshold() const {
    const GpuSizes sizes(view_);
    double all = 0, basic = 0;
    for (NodeIndex node = 0; node < static_cast<NodeIndex>(view_.nodes.size()); ++node) {
      const NodeView& seen = view_.nodes[static_cast<std::size_t>(node)];
      const double each = sizes.each_on(node);
      all += each * seen.total.gpus;
      basic += each * (seen.total.gpus - seen.free.gpus + placement_.kept_gpus(node));
    }
    for (const ElasticJobView& job : view_.jobs)
      for (const CompanionView& companion : job.companions)
        basic -= companion.node >= 0 ? sizes.each_on(companion.node) * companion.held.gpus
                                     : companion.held.gpus;
    if (!(all > 0)) return 1;
    const double intensity = basic / all;
    return std::pow(std::clamp(intensity, 0.0, 1.0), options_.aggressiveness);
  }

  void reclaim_below(double tau) {
    for (const ElasticJobView& job : view_.jobs) {
      for (const CompanionView& companion : job.companions)
        if (companion.benefit >= 0 && companion.benefit < kKept * tau && !companion.leaving &&
            !placement_.is_reclaimed(companion.id) && !is_owed(job, companion))
          placement_.reclaim(job, companion, Reclaim::Why::brings_little);
      const auto found = steps_.find(job.id);
      if (found == steps_.end()) continue;
      for (auto step = found->second.rbegin(); step != found->second.rend(); ++step) {
        if (placement_.is_reclaimed(step->companion->id) || step->companion->benefit >= 0) continue;
        if (step->benefit >= kKept * tau || is_owed(job, *step->companion)) break;
        placement_.reclaim(job, *step->companion, Reclaim::Why::brings_little);
      }
    }
  }

  /// Returns the GPUs lent to the job over its basic demand, relative to the mean of all jobs; 0 if
  /// nothing is lent.
  double share(const Runner& runner) const {
    double basic = 0, lent = 0;
    for (const ElasticJobView& job : view_.jobs) {
      basic += job.basic_gpus;
      lent += placement_.total(job) - job.basic_gpus;
    }
    const double mean = lent / std::max(basic, 1.0);
    const double mine = static_cast<double>(runner.total - runner.job->basic_gpus) /
                        std::max(runner.job->basic_gpus, 1);
    return mean > 0 ? mine / mean : 0;
  }

  struct Best {
    double owed_since = kNever;  ///< of a job that would get no more than it is owed
    double benefit = 0;
    std::size_t runner = 0;
    long as_of = 0;
    Expansion offer;
    bool operator<(const Best& other) const {
      if (owed_since != other.owed_since) return owed_since > other.owed_since;
      return benefit != other.benefit ? benefit < other.benefit : runner > other.runner;
    }
  };

  std::optional<Best> best_of(Expansions& expansions, std::size_t index, double tau) {
    const Runner& runner = expansions.runners()[index];
    const double more_than_share = options_.fairness > 0 ? std::max(share(runner), 1.0) : 1.0;
    std::optional<Best> best;
    const GpuSizes sizes(view_);
    const int have = runner.layout.gpu_count();
    const double size = sizes.of(runner.layout);
    const int owed = runner.job->wanted_gpus - runner.total;
    for (Expansion& offer : expansions.offers(runner, have)) {
      double more = 0;
      for (int i = 0; i < offer.gpus; ++i)
        more += sizes.of(offer.scaling.taken(static_cast<std::size_t>(i)));
      double benefit = marginal_benefit(size, more, runner.throughput, offer.throughput);
      if (more_than_share > 1) benefit /= std::pow(more_than_share, options_.fairness);
      const double since = offer.gpus <= owed ? runner.job->started_s : kNever;
      if (!(benefit > 0) || (benefit < tau && since == kNever)) continue;
      Best next{since, benefit, index, expansions.changes(), std::move(offer)};
      if (!best || *best < next) best = std::move(next);
    }
    return best;
  }

  void scale_out(Expansions& expansions, double tau) {
    std::priority_queue<Best> queue;
    for (std::size_t i = 0; i < expansions.runners().size(); ++i)
      if (auto best = best_of(expansions, i, tau)) queue.push(std::move(*best));
    while (!queue.empty()) {
      Best best = queue.top();
      queue.pop();
      // The offer is out of date if GPUs were lent since: that can only lower its benefit, so it is
      // made anew and goes back into the queue.
      if (best.as_of == expansions.changes())
        expansions.lend(expansions.runners()[best.runner], best.offer, best.benefit);
      if (auto next = best_of(expansions, best.runner, tau)) queue.push(std::move(*next));
    }
  }

  /// Lends what is left to jobs without a plan, once in a decision to each.
  void lend_more(std::vector<const ElasticJobView*> others, const std::vector<Grant>& owed,
                 Decisions& decisions) {
    std::erase_if(others, [&](const ElasticJobView* job) {
      return std::any_of(owed.begin(), owed.end(),
                         [&](const Grant& grant) { return grant.job == job->id; });
    });
    for (const Grant& grant : lend_worker_by_worker(placement_, others, options_.min_growth))
      decisions.grants.push_back(grant);
  }

  const ClusterView& view_;
  const MarginalBenefit::Options& options_;
  const ScaleTables& growing_;
  const ScaleTables& grown_;
  PlacementState placement_;
  std::map<JobId, std::vector<Step>> steps_;
};

}  // namespace

namespace {

std::unique_ptr<const planner::Solver> limited(std::unique_ptr<const planner::Solver> solver,
                                               const MarginalBenefit::Options& options) {
  if (!options.budget) return solver;
  return std::make_unique<planner::Limited>(std::move(solver), options.budget);
}

}  // namespace

MarginalBenefit::MarginalBenefit() : MarginalBenefit(Options{}) {}
MarginalBenefit::MarginalBenefit(Options options)
    : MarginalBenefit(options, incremental(0), incremental(kAnyNumber)) {}
MarginalBenefit::MarginalBenefit(Options options, std::unique_ptr<const planner::Solver> growing,
                                 std::unique_ptr<const planner::Solver> grown)
    : options_(options),
      growing_(limited(std::move(growing), options)),
      grown_(limited(std::move(grown), options)) {}

Decisions MarginalBenefit::decide(const ClusterView& view) const {
  Searched unread;
  return decide(view, nullptr, unread);
}

Decisions MarginalBenefit::decide(const ClusterView& view, LastResort* last_resort,
                                  Searched& searched) const {
  return Decision(view, options_, growing_, grown_).run(last_resort, searched);
}

}  // namespace swell::policy
