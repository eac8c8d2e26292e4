// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/swell.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "core/perf/performance_model.h"
#include "core/planner/incremental.h"
#include "core/policy/expansions.h"
#include "core/policy/worker_by_worker.h"

namespace swell::policy {

namespace {

/// Jobs younger than this are alike: the first seconds say nothing.
constexpr double kYoung_s = 10;

/// GPUs looked at in one step: the time to plan grows with their square, and steps follow each other.
constexpr int kStep = 64;

double speed(const ElasticJobView& job, const plan::Layout& layout, const ClusterView& view) {
  return perf::PerformanceModel(*job.training->model, *view.machines, *job.training->coefficients).throughput(layout);
}

/// One decision being worked out.
class Decision {
 public:
  Decision(const ClusterView& view, const Swell::Options& options, const ScaleTables& tables)
      : view_(view), options_(options), tables_(tables), room_(view) {}

  Decisions run() {
    for (const ElasticJobView& job : view_.jobs) {
      if (!Expansions::can_plan(job, view_)) continue;
      basic_[job.id] = speed(job, job.training->basic, view_);
      if (!job.companions.empty()) steps_[job.id] = steps(job, tables_, view_);
    }
    room_.serve_queue(options_.queue_depth, [this](const ElasticJobView& job, const CompanionView& companion) {
      return loss(job, companion);
    }, Room::Nodes::least_loss_first);
    rebalance();
    room_.close();
    Decisions decisions;
    lend(decisions);
    write_shrunk(room_, tables_, decisions);
    std::vector<const ElasticJobView*> others;
    for (const ElasticJobView& job : view_.jobs)
      if (!Expansions::can_plan(job, view_)) others.push_back(&job);
    for (const Grant& grant : lend_worker_by_worker(room_, others, options_.least_growth)) decisions.grants.push_back(grant);
    decisions.reclaims = room_.reclaims();
    return decisions;
  }

 private:
  // ---- what a job's speed is worth

  /// Of a job that is `times` as fast as on its basic GPUs.
  double utility(double times) const {
    const double left = 1 - options_.aversion;
    return std::abs(left) < 1e-9 ? std::log(times) : std::pow(times, left) / left;
  }

  double weight(const ElasticJobView& job) const {
    return std::pow(std::max(view_.now_s - job.started_s, kYoung_s), -options_.youth);
  }

  double gain(const ElasticJobView& job, double before, double after) const {
    const double basic = basic_.at(job.id);
    return weight(job) * (utility(after / basic) - utility(before / basic));
  }

  /// A GPU of the companion.
  double loss(const ElasticJobView& job, const CompanionView& companion) const {
    const auto found = steps_.find(job.id);
    if (found != steps_.end())
      for (const Step& step : found->second)
        if (step.companion == &companion) return gain(job, step.before, step.after) / companion.held.gpus;
    return 0;  // nothing is known: the profiled ones are worth more
  }

  // ---- from those who gain little to those who gain much

  using Companions = std::vector<std::pair<const ElasticJobView*, const CompanionView*>>;

  void rebalance() {
    std::vector<std::pair<double, const ElasticJobView*>> takers;  // what a GPU is worth to them
    for (const ElasticJobView& job : view_.jobs) {
      if (!job.may_grow || room_.shrinks(job) || !basic_.contains(job.id)) continue;
      const double now = speed(job, job.training->current, view_);
      takers.emplace_back(gain(job, now, 2 * now) / std::max(room_.total(job), 1), &job);
    }
    std::stable_sort(takers.begin(), takers.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    if (takers.size() > static_cast<std::size_t>(options_.takers)) takers.resize(static_cast<std::size_t>(options_.takers));
    std::set<JobId> shrunk;
    for (const auto& [worth, taker] : takers) {
      if (shrunk.contains(taker->id)) continue;
      const Companions worth_less = companions_below(worth / options_.margin, *taker, shrunk);
      if (worth_less.empty()) continue;
      for (const auto& [job, companion] : best_for(*taker, worth_less)) {
        room_.take_back(*job, *companion);
        shrunk.insert(job->id);
      }
    }
  }

  Companions companions_below(double worth, const ElasticJobView& taker, const std::set<JobId>& shrunk) const {
    Companions found;
    for (const ElasticJobView& job : view_.jobs) {
      if (&job == &taker || !job.may_grow || shrunk.contains(job.id) || room_.shrinks(job) || !steps_.contains(job.id)) continue;
      for (const CompanionView& companion : job.companions)
        if (!companion.leaving && companion.node >= 0 && loss(job, companion) <= worth) found.emplace_back(&job, &companion);
    }
    return found;
  }

  /// Those of `pool` whose GPUs bring the taker, over what idle ones do, the most more than is lost.
  Companions best_for(const ElasticJobView& taker, const Companions& pool) const {
    Room imagined = room_;
    imagined.close();
    Expansions expansions(imagined, tables_);
    const auto runner = std::find_if(expansions.runners().begin(), expansions.runners().end(),
                                     [&](const Runner& one) { return one.job == &taker; });
    if (runner == expansions.runners().end()) return {};
    double with_idle = 0;
    for (const Offer& offer : expansions.offers(*runner, std::min(runner->total, kStep)))
      with_idle = std::max(with_idle, gain(taker, runner->throughput, offer.throughput));
    for (const auto& [job, companion] : pool) expansions.imagine_idle(*companion);
    Companions best;
    double best_net = 0;
    for (const Offer& offer : expansions.offers(*runner, std::min(runner->total, kStep))) {
      const Companions touched = touched_by(offer, pool);
      double lost = 0;
      for (const auto& [job, companion] : touched) lost += loss(*job, *companion) * companion->held.gpus;
      const double net = gain(taker, runner->throughput, offer.throughput) - with_idle - options_.margin * lost;
      if (touched.empty() || net <= best_net) continue;
      best_net = net;
      best = touched;
    }
    return best;
  }

  static Companions touched_by(const Offer& offer, const Companions& pool) {
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

  /// Whether the job's whole change of plan brings more than standing still costs: FlexTrain, equation
  /// 14, over what is left to do where that is known.
  bool worth_it(const Runner& runner) const {
    const ElasticJobView& job = *runner.job;
    const double now = speed(job, job.training->current, view_), times = runner.throughput / now;
    if (times < options_.least_speedup) return false;
    if (job.training->remaining_samples < 0) return true;
    const RedeploymentCost cost = redeployment_cost(Redeployment::local_reuse, *job.training->model, *job.training->coefficients,
                                                    job.training->current, runner.layout, *view_.machines);
    return job.training->remaining_samples / now > cost.delay_s + times / (times - 1) * cost.pause_s;
  }

  /// Lends, leaves out those for whom it is not worth it, and lends anew to the others.
  void lend(Decisions& decisions) {
    const Room before = room_;
    std::set<JobId> left_out;
    for (;;) {
      room_ = before;
      Expansions expansions(room_, tables_);
      scale_out(expansions, left_out);
      bool all = true;
      for (const Runner& runner : expansions.runners())
        if (!runner.lent.empty() && !worth_it(runner)) {
          left_out.insert(runner.job->id);
          all = false;
        }
      if (!all) continue;
      expansions.write(decisions);
      return;
    }
  }

  struct Best {
    double gain = 0;  ///< a GPU
    std::size_t runner = 0;
    long as_of = 0;
    Offer offer;
    bool operator<(const Best& other) const { return gain != other.gain ? gain < other.gain : runner > other.runner; }
  };

  std::optional<Best> best_of(Expansions& expansions, std::size_t index) const {
    const Runner& runner = expansions.runners()[index];
    std::optional<Best> best;
    for (Offer& offer : expansions.offers(runner, std::min(runner.layout.gpu_count(), kStep))) {
      if (!(offer.throughput > runner.throughput)) continue;
      const double each = gain(*runner.job, runner.throughput, offer.throughput) / offer.gpus;
      if (!best || each > best->gain) best = Best{each, index, expansions.changes(), std::move(offer)};
    }
    return best;
  }

  void scale_out(Expansions& expansions, const std::set<JobId>& left_out) const {
    std::priority_queue<Best> queue;
    for (std::size_t i = 0; i < expansions.runners().size(); ++i)
      if (!left_out.contains(expansions.runners()[i].job->id))
        if (auto best = best_of(expansions, i)) queue.push(std::move(*best));
    while (!queue.empty()) {
      const Best best = queue.top();
      queue.pop();
      if (best.as_of == expansions.changes()) expansions.lend(expansions.runners()[best.runner], best.offer);
      if (auto next = best_of(expansions, best.runner)) queue.push(std::move(*next));
    }
  }

  const ClusterView& view_;
  const Swell::Options& options_;
  const ScaleTables& tables_;
  Room room_;
  std::map<JobId, double> basic_;  ///< samples a second of profiled jobs on their basic plans
  std::map<JobId, std::vector<Step>> steps_;
};

std::unique_ptr<const planner::Solver> as_far_as_asked() {
  planner::Incremental::Options options;
  options.most_free = 1 << 20;
  return std::make_unique<planner::Incremental>(options);
}

}  // namespace

Swell::Swell() : Swell(Options{}) {}
Swell::Swell(Options options) : options_(options), tables_(as_far_as_asked()) {}

Decisions Swell::decide(const ClusterView& view) const { return Decision(view, options_, tables_).run(); }

}  // namespace swell::policy
