// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/swell.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "core/planner/incremental.h"
#include "core/planner/micro_batches.h"
#include "core/planner/symmetric.h"
#include "core/policy/lending/belief.h"
#include "core/policy/lending/expansions.h"
#include "core/policy/lending/worker_by_worker.h"

namespace swell::policy {

namespace {

/// Floor for a job's age and for its time left in weight(): the first seconds tell nothing.
constexpr double kMinAge_s = 10;

/// Factor of at_most() over linear scaling: a larger plan may use the job's own GPUs better too.
constexpr double kBetterThanLinear = 1.25;

/// Floor for after_pause(): a job keeps this share of its speed, however long it pauses.
constexpr double kMinLeft = 0.01;

/// GPUs that one step of best_of() considers, as planning time grows with their square; the next
/// step goes on from there.
constexpr int kStep = 64;

/// Plans evaluated in one decision by the thorough solver, and in all: about 0.03 s and 0.6 s of a
/// core.
constexpr long kMaxThorough = 20'000, kMaxEvaluated = 400'000;

/// State of one decision while it is made.
class Decision {
 public:
  /// `few`: tables that compare few plans.
  Decision(const ClusterView& view, const Swell::Options& options, const ScaleTables& tables,
           const ScaleTables& few)
      : view_(view),
        options_(options),
        belief_(view, tables),
        tables_(belief_.too_far_off() ? few : tables),
        room_(view) {}

  Decisions run() {
    const bool any_known =
        std::any_of(view_.jobs.begin(), view_.jobs.end(),
                    [this](const ElasticJobView& job) { return belief_.knows(job); });
    const Room::Loss loss_of = [this](const ElasticJobView& job, const CompanionView& companion) {
      return loss(job, companion);
    };
    room_.serve_queue(options_.queue_depth, loss_of,
                      any_known ? Room::Nodes::by_loss : Room::Nodes::by_idle);
    give_back_what_slows();
    rebalance();
    room_.close();
    Decisions decisions;
    lend(decisions);
    write_shrunk(room_, tables_, decisions);
    std::vector<const ElasticJobView*> others;
    for (const ElasticJobView& job : view_.jobs)
      if (!Expansions::can_plan(job, view_)) others.push_back(&job);
    for (const Grant& grant : lend_worker_by_worker(room_, others, options_.min_growth))
      decisions.grants.push_back(grant);
    decisions.reclaims = room_.reclaims();
    if (view_.order_wanted) decisions.reclaim_order = room_.reclaim_order(loss_of);
    return decisions;
  }

 private:
  double predicted(const ElasticJobView& job, const plan::Layout& layout) const {
    return tables_.throughput(*job.training, layout, *view_.machines);
  }

  /// Reclaims what is lent to jobs that, by their profile, are no faster with it than without: they
  /// were lent it before the profile was known. Who is measured to be no faster: trust.h.
  void give_back_what_slows() {
    for (const ElasticJobView& job : view_.jobs) {
      if (!belief_.knows(job) || room_.shrinks(job) || job.companions.empty() ||
          predicted(job, job.training->current) > predicted(job, job.training->basic))
        continue;
      for (const CompanionView& companion : job.companions)
        if (!companion.leaving && job.may_grow) room_.reclaim(job, companion, Reclaim::Why::slows);
    }
  }

  // ---- what a job's speed is worth

  /// Worth of a job's speed, which is `times` that on its basic GPUs: a power below 1, so that much
  /// for one job counts less than a little for several.
  double utility(double times) const {
    const double left = 1 - options_.aversion;
    return std::abs(left) < 1e-9 ? std::log(times) : std::pow(times, left) / left;
  }

  double weight(const ElasticJobView& job) const {
    if (job.training->remaining_samples >= 0)
      return std::pow(std::max(job.training->remaining_samples / belief_.basic(job), kMinAge_s),
                      -options_.shortness);
    return std::pow(std::max(view_.now_s - job.started_s, kMinAge_s), -options_.youth);
  }

  double gain(const ElasticJobView& job, double before, double after) const {
    const double basic = belief_.basic(job);
    return weight(job) * (utility(after / basic) - utility(before / basic));
  }

  /// Loss of the job by one GPU of the companion, in the unit of gain(); companions count in the
  /// order in which the job got them. Sizes in between are not planned anew at every decision:
  /// speed is taken to have grown with one power of the GPUs all the way.
  double loss(const ElasticJobView& job, const CompanionView& companion) const {
    if (!belief_.knows(job))
      return -room_.total(job);  // without a profile: before the profiled ones, as FewestFirst
    const double alone = belief_.basic(job);
    const double basic = job.training->basic.gpu_count(), all = basic + job.lent_gpus();
    double before = basic;
    for (const CompanionView& other : job.companions)
      if (other.id < companion.id) before += other.held.gpus;
    const double power = std::log(std::max(belief_.now(job) / alone, 1.0)) / std::log(all / basic);
    const auto with = [&](double gpus) { return alone * std::pow(gpus / basic, power); };
    return gain(job, with(before), with(before + companion.held.gpus)) / companion.held.gpus;
  }

  // ---- what a change of plan costs

  redeploy::Cost cost_of(const ElasticJobView& job, const plan::Layout& to) const {
    return redeploy::cost_of(redeploy::Method::local_reuse, *job.training->coefficients,
                             job.training->current, to, *view_.machines);
  }

  /// Seconds within which a change of plan has to pay: the time left where that is known; otherwise
  /// the time that the job has run, since durations have long tails: half of the jobs of an age
  /// reach twice that age.
  double horizon_s(const ElasticJobView& job, double throughput) const {
    if (job.training->remaining_samples >= 0) return job.training->remaining_samples / throughput;
    return std::max(view_.now_s - job.started_s, options_.min_horizon_s);
  }

  /// Mean throughput over the horizon, with a pause of `pause_s` in it.
  double after_pause(const ElasticJobView& job, double throughput, double pause_s) const {
    const double share = pause_s / horizon_s(job, throughput);
    return throughput * std::max(1 - share, kMinLeft);
  }

  // ---- moving companions from jobs that gain little by them to jobs that gain much

  using Companions = std::vector<std::pair<const ElasticJobView*, const CompanionView*>>;

  void rebalance() {
    std::vector<std::pair<double, const ElasticJobView*>> takers;  // worth of a GPU to each
    for (const ElasticJobView& job : view_.jobs) {
      if (!job.may_grow || room_.shrinks(job) || !belief_.knows(job)) continue;
      const double now = belief_.now(job);
      takers.emplace_back(gain(job, now, 2 * now) / std::max(room_.total(job), 1), &job);
    }
    std::stable_sort(takers.begin(), takers.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    if (takers.size() > static_cast<std::size_t>(options_.takers))
      takers.resize(static_cast<std::size_t>(options_.takers));
    std::set<JobId> shrunk;
    for (const auto& [worth, taker] : takers) {
      if (shrunk.contains(taker->id)) continue;
      const Companions worth_less = companions_below(worth / options_.margin, *taker, shrunk);
      if (worth_less.empty()) continue;
      for (const auto& [job, companion] : best_for(*taker, worth_less)) {
        room_.reclaim(*job, *companion, Reclaim::Why::another_job);
        shrunk.insert(job->id);
      }
    }
  }

  Companions companions_below(double worth, const ElasticJobView& taker,
                              const std::set<JobId>& shrunk) const {
    Companions found;
    for (const ElasticJobView& job : view_.jobs) {
      if (&job == &taker || !job.may_grow || shrunk.contains(job.id) || room_.shrinks(job) ||
          !belief_.knows(job))
        continue;
      for (const CompanionView& companion : job.companions)
        if (!companion.leaving && companion.node >= 0 && loss(job, companion) <= worth)
          found.emplace_back(&job, &companion);
    }
    return found;
  }

  /// The companions of `pool` whose GPUs help the taker most beyond what idle GPUs do, less the
  /// loss of their jobs; none where that does not make up for the pauses.
  Companions best_for(const ElasticJobView& taker, const Companions& pool) const {
    Room imagined = room_;
    imagined.close();
    Expansions expansions(imagined, tables_, &effort_, &belief_);
    const auto runner = std::find_if(expansions.runners().begin(), expansions.runners().end(),
                                     [&](const Runner& one) { return one.job == &taker; });
    if (runner == expansions.runners().end()) return {};
    double with_idle = 0;
    for (const Expansion& offer : expansions.offers(*runner, std::min(runner->total, kStep)))
      with_idle = std::max(with_idle, gain(taker, runner->throughput, offer.throughput));
    for (const auto& [job, companion] : pool) expansions.imagine_idle(*companion);
    Companions best;
    double best_net = 0;
    const Expansion* best_offer = nullptr;
    const std::vector<Expansion> offers =
        expansions.offers(*runner, std::min(runner->total, kStep));
    for (const Expansion& offer : offers) {
      const Companions touched = touched_by(offer, pool);
      const double net = gain(taker, runner->throughput, offer.throughput) - with_idle -
                         options_.margin * lost_with(touched);
      if (touched.empty() || net <= best_net) continue;
      best_net = net;
      best = touched;
      best_offer = &offer;
    }
    if (best_offer == nullptr || best_net <= pauses(taker, *best_offer, best)) return {};
    return best;
  }

  double lost_with(const Companions& given) const {
    double lost = 0;
    for (const auto& [job, companion] : given)
      lost += loss(*job, *companion) * companion->held.gpus;
    return lost;
  }

  /// Cost of the pauses of the taker and of the jobs that lose companions, in the unit of gain().
  /// Slow: called for the best offer alone.
  double pauses(const ElasticJobView& taker, const Expansion& offer,
                const Companions& given) const {
    const double taker_s = cost_of(taker, offer.scaling.layout(offer.row)).pause_s;
    double sum = gain(taker, after_pause(taker, offer.throughput, taker_s), offer.throughput);
    std::set<JobId> counted;
    for (const auto& [job, companion] : given) {
      if (!counted.insert(job->id).second) continue;
      const double now = belief_.now(*job);
      sum += gain(*job, after_pause(*job, now, cost_of(*job, job->training->basic).pause_s), now);
    }
    return sum;
  }

  static Companions touched_by(const Expansion& offer, const Companions& pool) {
    std::map<NodeIndex, plan::GpuMask> taken;
    for (int i = 0; i < offer.gpus; ++i) {
      const cluster::GpuRef gpu = offer.scaling.taken(static_cast<std::size_t>(i));
      taken[gpu.node] |= plan::GpuMask{1} << gpu.index;
    }
    Companions touched;
    for (const auto& each : pool) {
      const auto there = taken.find(each.second->node);
      if (there != taken.end() && (there->second & each.second->gpus) != 0) touched.push_back(each);
    }
    return touched;
  }

  // ---- lending

  /// Whether the job's change of plan brings more than its pause costs: FlexTrain, equation 14,
  /// over horizon_s().
  bool worth_it(const Runner& runner) const {
    const ElasticJobView& job = *runner.job;
    const double now = belief_.now(job), times = runner.throughput / now;
    if (times < options_.min_speedup) return false;
    if (job.starting) return true;
    const redeploy::Cost cost = cost_of(job, runner.layout);
    return horizon_s(job, now) > cost.delay_s + times / (times - 1) * cost.pause_s;
  }

  /// Lends, and starts over with fewer GPUs for a job whose change of plan is not worth its pause.
  void lend(Decisions& decisions) {
    const Room before = room_;
    std::map<JobId, int> max;
    for (;;) {
      room_ = before;
      Expansions expansions(room_, tables_, &effort_, &belief_);
      scale_out(expansions, max);
      bool all = true;
      for (const Runner& runner : expansions.runners())
        if (!runner.lent.empty() && !worth_it(runner)) {
          max[runner.job->id] = (runner.total - room_.total(*runner.job)) / 2;
          all = false;
        }
      if (!all) continue;
      expansions.write(decisions);
      return;
    }
  }

  /// Gain by each GPU of the runner's best offer; without an offer, an upper bound of it.
  struct Best {
    double gain = 0;
    std::size_t runner = 0;
    long as_of = 0;
    std::optional<Expansion> offer;
    bool operator<(const Best& other) const {
      return gain != other.gain ? gain < other.gain : runner > other.runner;
    }
  };

  std::optional<Best> best_of(Expansions& expansions, std::size_t index,
                              const std::map<JobId, int>& max, Care care) const {
    const Runner& runner = expansions.runners()[index];
    int gpus = runner.layout.gpu_count();
    if (const auto found = max.find(runner.job->id); found != max.end())
      gpus = std::min(gpus, found->second - (runner.total - room_.total(*runner.job)));
    std::optional<Best> best = best_within(expansions, index, std::min(gpus, kStep), care);
    // Some plans need many more GPUs to get faster, such as twice the groups.
    return best || gpus <= kStep ? best : best_within(expansions, index, gpus, care);
  }

  std::optional<Best> best_within(Expansions& expansions, std::size_t index, int gpus,
                                  Care care) const {
    const Runner& runner = expansions.runners()[index];
    std::optional<Best> best;
    for (Expansion& offer : expansions.offers(runner, gpus, care)) {
      if (!(offer.throughput > runner.throughput)) continue;
      const double each = gain(*runner.job, runner.throughput, offer.throughput) / offer.gpus;
      if (!best || each > best->gain)
        best = Best{each, index, expansions.changes(), std::move(offer)};
    }
    return best;
  }

  /// Upper bound of best_of(): one GPU more at no loss. So scale tables are made only for jobs
  /// whose bound is the best while GPUs last.
  Best at_most(const Expansions& expansions, std::size_t index) const {
    const Runner& runner = expansions.runners()[index];
    const double one_more = runner.throughput * (1 + kBetterThanLinear / std::max(runner.total, 1));
    return {gain(*runner.job, runner.throughput, one_more), index, expansions.changes(),
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
        // It would be lent: better plans for it, which may make it wait for another job's.
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
  const ScaleTables& tables_;
  mutable Effort effort_{kMaxThorough, kMaxEvaluated};
  Room room_;
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
  }
  return view;
}

/// Solver for any number of GPUs, with plans from scratch for up to `fresh_gpus`. For more than two
/// nodes they would take two thirds of the time, and no simulated job ended sooner for them; for up
/// to two, a job without them can stay at 0.79 of the optimum.
std::unique_ptr<const planner::Solver> as_far_as_asked(int fresh_gpus) {
  planner::Incremental::Options options;
  options.fresh_gpus = fresh_gpus;
  options.max_free = 1 << 20;
  return std::make_unique<planner::FewerMicroBatches>(
      std::make_unique<planner::Incremental>(options));
}

/// Compares some tens of plans for each number of GPUs, where as_far_as_asked() compares hundreds:
/// symmetric ones, or of a job whose arithmetic has to stay as it is those alone.
class AmongFew final : public planner::Solver {
 public:
  planner::ScaleTable solve(const planner::Problem& problem,
                            const planner::Budget& budget) const override {
    if (problem.consistency == planner::Consistency::exact) return exact_->solve(problem, budget);
    return symmetric_.solve(problem, budget);
  }

 private:
  std::unique_ptr<const planner::Solver> exact_ = as_far_as_asked(0);
  planner::FewerMicroBatches symmetric_{std::make_unique<planner::Symmetric>()};
};

}  // namespace

Swell::Swell() : Swell(Options{}) {}
Swell::Swell(Options options)
    : options_(options),
      tables_(as_far_as_asked(16), as_far_as_asked(0), kSends),
      few_(std::make_unique<AmongFew>(), kSends) {}

Decisions Swell::decide(const ClusterView& view) const {
  const ClusterView known = with_expectations(view);
  return Decision(known, options_, tables_, few_).run();
}

}  // namespace swell::policy
