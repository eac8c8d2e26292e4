// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/swell.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "core/planner/incremental.h"
#include "core/planner/micro_batches.h"
#include "core/planner/symmetric.h"
#include "core/policy/lending/belief.h"
#include "core/policy/lending/deadlines.h"
#include "core/policy/lending/expansions.h"
#include "core/policy/lending/rebalance.h"
#include "core/policy/lending/worker_by_worker.h"
#include "core/policy/lending/worth.h"

namespace swell::policy {

namespace {

/// Factor of at_most() over linear scaling: a larger plan may use the job's own GPUs better too.
constexpr double kBetterThanLinear = 1.25;

/// Plans evaluated in one decision by the thorough solver, and in all: about 0.03 s and 0.6 s of a
/// core.
constexpr long kMaxThorough = 20'000, kMaxEvaluated = 400'000;

/// State of one decision while it is made.
class Decision {
 public:
  /// `few`: tables that compare few plans, for jobs whose predictions are far off.
  Decision(const ClusterView& view, const Swell::Options& options, const ScaleTables& tables,
           const ScaleTables& few)
      : view_(view),
        options_(options),
        belief_(view, tables, &few),
        worth_(view, options, belief_),
        tables_(tables),
        placement_(view) {}

  /// Makes the decisions, except for Decisions::deadlines.
  Decisions run() {
    const bool any_known =
        std::any_of(view_.jobs.begin(), view_.jobs.end(),
                    [this](const ElasticJobView& job) { return belief_.knows(job); });
    const PlacementState::Loss loss_of = [this](const ElasticJobView& job,
                                                const CompanionView& companion) {
      return loss(job, companion);
    };
    placement_.serve_queue(
        options_.queue_depth, loss_of,
        any_known ? PlacementState::Nodes::by_loss : PlacementState::Nodes::by_idle);
    give_back_what_slows();
    Rebalance(view_, options_, belief_, worth_, tables_, effort_, placement_, loss_of).run();
    std::vector<const ElasticJobView*> others;
    for (const ElasticJobView& job : view_.jobs)
      if (!Expansions::can_plan(job, view_)) others.push_back(&job);
    reclaim_for_owed(placement_, others, loss_of);
    placement_.close();
    // Lend owed GPUs first, here to jobs without a plan, then to planned ones. The jobs of each
    // kind come in the order of their starts: few jobs are owed some at one time, and most jobs
    // without a plan will soon have a profile.
    const std::vector<Grant> owed = lend_what_is_owed(placement_, others);
    Decisions decisions;
    decisions.grants = owed;
    lend(decisions, owed);
    replan(decisions);
    write_shrunk(placement_, tables_, decisions, &belief_);
    // A job's total in the placement state does not include what this decision lends: leave lending
    // it more to later decisions.
    std::erase_if(others, [&](const ElasticJobView* job) {
      return std::any_of(owed.begin(), owed.end(),
                         [&](const Grant& grant) { return grant.job == job->id; });
    });
    for (const Grant& grant : lend_worker_by_worker(placement_, others, options_.min_growth))
      decisions.grants.push_back(grant);
    write_reclaims(placement_, loss_of, decisions);
    return decisions;
  }

 private:
  double predicted(const ElasticJobView& job, const plan::Layout& layout) const {
    return tables_.throughput(*job.training, layout, *view_.machines);
  }

  /// Reclaims what is lent to jobs that, by their profile, are no faster with it than without: they
  /// were lent it before the profile was known, and no other plan would help. See trust.h for
  /// jobs that are measured to be no faster.
  void give_back_what_slows() {
    for (const ElasticJobView& job : view_.jobs) {
      if (!belief_.knows(job) || placement_.shrinks(job) || job.companions.empty() ||
          predicted(job, job.training->current) > predicted(job, job.training->basic) ||
          better_plan(job))
        continue;
      for (const CompanionView& companion : job.companions)
        if (!companion.leaving && !job.changing)
          placement_.reclaim(job, companion, Reclaim::Why::slows);
    }
  }

  /// Returns the job's loss for each GPU of the companion, in the unit of Worth::gain().
  double loss(const ElasticJobView& job, const CompanionView& companion) const {
    if (!belief_.knows(job))  // lost before profiled jobs, as in FewestFirst
      return (is_owed(job, companion) ? kOwed : 0) - placement_.total(job);
    return worth_.loss(job, companion);
  }

  // ---- lending

  /// Returns whether the job's change of plan brings more than its pause costs: FlexTrain, equation
  /// 14, over horizon_s().
  bool worth_it(const Runner& runner) const {
    const ElasticJobView& job = *runner.job;
    const double now = belief_.now(job), times = runner.throughput / now;
    // A job that is owed GPUs is exempt: one GPU among many brings less than min_speedup.
    if (times < options_.min_speedup && placement_.total(job) >= owed_total(job)) return false;
    if (job.starting) return true;
    const redeploy::Cost cost = worth_.cost_of(job, runner.layout);
    return worth_.horizon_s(job, now) > cost.delay_s + times / (times - 1) * cost.pause_s;
  }

  /// Lends, and starts over with fewer GPUs for a job whose change of plan is not worth its pause.
  /// `unnamed`: grants that the placement state already includes.
  void lend(Decisions& decisions, const std::vector<Grant>& unnamed) {
    const PlacementState before = placement_;
    std::map<JobId, int> max;
    for (;;) {
      placement_ = before;
      Expansions expansions(placement_, tables_, &effort_, &belief_, options_.row_filter());
      for (const Grant& grant : unnamed) expansions.set_aside(grant.node, grant.lent.gpus);
      scale_out(expansions, max);
      bool all = true;
      for (const Runner& runner : expansions.runners())
        if (!runner.lent.empty() && !worth_it(runner)) {
          max[runner.job->id] = (runner.total - placement_.total(*runner.job)) / 2;
          all = false;
        }
      if (!all) continue;
      expansions.write(decisions);
      return;
    }
  }

  // ---- another plan for the same GPUs

  /// Returns the job under a plan that pays, over all GPUs that it is lent; nothing if there is
  /// none. Until then a program decides itself how to use GPUs that were lent before its profile
  /// was known.
  std::optional<Runner> better_plan(const ElasticJobView& job) const {
    if (!job.may_replan || placement_.shrinks(job) || !belief_.knows(job)) return std::nullopt;
    if (job.companions.empty()) {
      auto runner = rescheduled(job, placement_, belief_, &effort_);
      return runner && worth_it(*runner) ? std::move(runner) : std::nullopt;
    }
    const std::vector<cluster::GpuRef> lent = lent_gpus(job, placement_);
    const Scaling scaling =
        belief_.tables_of(job).of(*job.training, job.training->basic, lent, lent.size(),
                                  *view_.machines, &effort_, Care::quick);
    if (scaling.rows() == 0) return std::nullopt;
    const std::size_t last = scaling.rows() - 1;
    Runner runner{&job, scaling.layout(last), placement_.total(job), scaling.throughput(last), {},
                  {}};
    const bool uses_all = std::all_of(lent.begin(), lent.end(), [&](const cluster::GpuRef& gpu) {
      return uses(runner.layout, gpu.node, plan::GpuMask{1} << gpu.index);
    });
    return uses_all && worth_it(runner) ? std::optional(std::move(runner)) : std::nullopt;
  }

  void replan(Decisions& decisions) const {
    std::set<JobId> planned;
    for (const NewPlan& plan : decisions.plans) planned.insert(plan.job);
    for (const ElasticJobView& job : view_.jobs)
      if (!planned.contains(job.id))
        if (auto runner = better_plan(job))
          decisions.plans.push_back({job.id, std::move(runner->layout)});
  }

  /// Gain from each GPU of the runner's best offer; if there is no offer yet, an upper bound.
  struct Best {
    double owed_since = kNever;  ///< of a job that would get no more than it is owed
    double level = 0;            ///< Worth::level(), the lowest first
    double gain = 0;
    std::size_t runner = 0;
    long as_of = 0;
    std::optional<Expansion> offer;
    bool operator<(const Best& other) const {
      if (owed_since != other.owed_since) return owed_since > other.owed_since;
      if (level != other.level) return level > other.level;
      return gain != other.gain ? gain < other.gain : runner > other.runner;
    }
  };

  std::optional<Best> best_of(Expansions& expansions, std::size_t index,
                              const std::map<JobId, int>& max, Care care) const {
    const Runner& runner = expansions.runners()[index];
    int gpus = runner.layout.gpu_count();
    if (const auto found = max.find(runner.job->id); found != max.end())
      gpus = std::min(gpus, found->second - (runner.total - placement_.total(*runner.job)));
    for (const Owed& owed : owed_beyond(*runner.job, runner.total))
      if (auto best =
              best_within(expansions, index, std::min({gpus, owed.total - runner.total, kStep}),
                          care, owed.since))
        return best;
    std::optional<Best> best = best_within(expansions, index, std::min(gpus, kStep), care);
    // Some plans need many more GPUs to get faster, such as twice the groups.
    return best || gpus <= kStep ? best : best_within(expansions, index, gpus, care);
  }

  std::optional<Best> best_within(Expansions& expansions, std::size_t index, int gpus, Care care,
                                  double since = kNever) const {
    const Runner& runner = expansions.runners()[index];
    std::optional<Best> best;
    const double level = worth_.level(*runner.job, runner.throughput);
    for (Expansion& offer : expansions.offers(runner, gpus, care)) {
      if (!(offer.throughput > runner.throughput)) continue;
      const double each =
          worth_.gain(*runner.job, runner.throughput, offer.throughput) / offer.gpus;
      if (!best || each > best->gain)
        best = Best{since, level, each, index, expansions.changes(), std::move(offer)};
    }
    return best;
  }

  /// Returns an upper bound of best_of(): one GPU more at no loss. With it, scale tables are made
  /// only for jobs whose bound is the best while GPUs last.
  Best at_most(const Expansions& expansions, std::size_t index) const {
    const Runner& runner = expansions.runners()[index];
    const double one_more = runner.throughput * (1 + kBetterThanLinear / std::max(runner.total, 1));
    return {owed_since(*runner.job, runner.total),
            worth_.level(*runner.job, runner.throughput),
            worth_.gain(*runner.job, runner.throughput, one_more),
            index,
            expansions.changes(),
            std::nullopt};
  }

  void scale_out(Expansions& expansions, const std::map<JobId, int>& max) const {
    std::priority_queue<Best> queue;
    for (std::size_t i = 0; i < expansions.runners().size(); ++i)
      queue.push(at_most(expansions, i));
    while (!queue.empty()) {
      const Best best = queue.top();
      queue.pop();
      const bool best_now = best.offer && best.as_of == expansions.changes();
      if (best_now && !best.offer->scaling.thorough() && effort_.allows_thorough()) {
        // Search better plans for it before it is lent: another job's offer may then come first.
        if (auto next = best_of(expansions, best.runner, max, Care::thorough))
          queue.push(std::move(*next));
      } else if (best_now) {
        expansions.lend(expansions.runners()[best.runner], *best.offer);
        queue.push(at_most(expansions, best.runner));
      } else if (auto next = best_of(expansions, best.runner, max, Care::quick)) {
        queue.push(std::move(*next));
      }
    }
  }

  const ClusterView& view_;
  const Swell::Options& options_;
  Belief belief_;
  Worth worth_;
  const ScaleTables& tables_;
  mutable Effort effort_{kMaxThorough, kMaxEvaluated};
  PlacementState placement_;
};

/// Gives jobs without a profile coefficients from the data sheets of their GPUs, and lets those
/// that are just starting grow.
ClusterView with_expectations(ClusterView view) {
  for (ElasticJobView& job : view.jobs) {
    if (!view.machines || !job.training || !job.training->model || job.training->coefficients)
      continue;
    auto training = std::make_shared<Training>(*job.training);
    auto expected = std::make_shared<perf::Coefficients>(
        perf::expected_coefficients(*training->model, *view.machines));
    perf::expect_launches(*expected, *training->model, *view.machines);
    training->coefficients = std::move(expected);
    job.training = std::move(training);
    job.may_grow = job.may_grow || job.starting;
    job.changing = job.changing && !job.starting;
  }
  return view;
}

/// Solver for any number of GPUs, with plans from scratch for up to `fresh_gpus`. For more than two
/// nodes they would take two thirds of the time, and no simulated job ended sooner for them; for up
/// to two, a job without them can stay at 0.79 of the optimum.
std::unique_ptr<const planner::Solver> as_far_as_asked(int fresh_gpus,
                                                       std::shared_ptr<Executor> executor) {
  planner::Incremental::Options options;
  options.fresh_gpus = fresh_gpus;
  options.max_free = 1 << 20;
  options.executor = executor;
  return std::make_unique<planner::FewerMicroBatches>(
      std::make_unique<planner::Incremental>(options), std::move(executor));
}

std::unique_ptr<const planner::Solver> limited(std::unique_ptr<const planner::Solver> solver,
                                               const Swell::Options& options) {
  if (!options.budget) return solver;
  return std::make_unique<planner::Limited>(std::move(solver), options.budget);
}

/// Compares some tens of plans for each number of GPUs, where as_far_as_asked() compares hundreds:
/// symmetric plans, or exact plans for a job whose arithmetic must stay the same.
class AmongFew final : public planner::Solver {
 public:
  planner::ScaleTable solve(const planner::Problem& problem,
                            const planner::Budget& budget) const override {
    if (problem.consistency == planner::Consistency::exact) return exact_->solve(problem, budget);
    return symmetric_.solve(problem, budget);
  }

 private:
  std::unique_ptr<const planner::Solver> exact_ = as_far_as_asked(0, nullptr);
  planner::FewerMicroBatches symmetric_{std::make_unique<planner::Symmetric>()};
};

}  // namespace

Swell::Swell() : Swell(Options{}) {}
Swell::Swell(Options options)
    : options_(std::move(options)),
      tables_(limited(as_far_as_asked(16, options_.executor), options_),
              limited(as_far_as_asked(0, options_.executor), options_), kSends),
      few_(limited(std::make_unique<AmongFew>(), options_), kSends) {}

Decisions Swell::decide(const ClusterView& view) const {
  ClusterView known = with_expectations(view);
  std::vector<DeadlineState> deadlines;
  const bool has_deadlines =
      std::any_of(view.jobs.begin(), view.jobs.end(),
                  [](const ElasticJobView& job) { return job.deadline_s != kNoDeadline; });
  if (keeps_deadlines(options_.objective) && options_.deadlines > 0 && has_deadlines)
    deadlines = claim_for_deadlines(known, Belief(known, tables_, &few_), options_.queue_depth);
  Decisions decisions = Decision(known, options_, tables_, few_).run();
  decisions.deadlines = std::move(deadlines);
  return decisions;
}

}  // namespace swell::policy
