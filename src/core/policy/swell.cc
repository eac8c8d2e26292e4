// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/swell.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <queue>

#include "core/perf/performance_model.h"
#include "core/planner/incremental.h"
#include "core/policy/expansions.h"
#include "core/policy/worker_by_worker.h"

namespace swell::policy {

namespace {

double env(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atof(text) : otherwise;
}

class Decision {
 public:
  Decision(const ClusterView& view, const Swell::Options& options, const ScaleTables& growing, const ScaleTables& grown)
      : view_(view), options_(options), growing_(growing), grown_(grown), room_(view) {}

  Decisions run() {
    for (const ElasticJobView& job : view_.jobs)
      if (!job.companions.empty()) steps_[job.id] = steps(job, grown_, view_);
    room_.serve_queue(options_.queue_depth, [this](const ElasticJobView& job, const CompanionView& companion) {
      return loss(job, companion);
    }, Room::Nodes::least_loss_first);
    if (env("REB", 0) > 0) rebalance();
    room_.close();
    Decisions decisions;
    std::set<JobId> left_out;
    const Room before = room_;
    for (;;) {
      Room room = before;
      Expansions expansions(room, growing_);
      scale_out(expansions, left_out);
      bool all_worth_it = true;
      for (const Runner& runner : expansions.runners())
        if (!runner.lent.empty() && !worth_it(runner)) {
          left_out.insert(runner.job->id);
          all_worth_it = false;
        }
      if (!all_worth_it) continue;
      expansions.write(decisions);
      room_ = room;
      break;
    }
    write_shrunk(room_, grown_, decisions);
    std::vector<const ElasticJobView*> others;
    for (const ElasticJobView& job : view_.jobs)
      if (!Expansions::can_plan(job, view_)) others.push_back(&job);
    for (const Grant& grant : lend_worker_by_worker(room_, others, options_.least_growth)) decisions.grants.push_back(grant);
    decisions.reclaims = room_.reclaims();
    return decisions;
  }

 private:
  double speed_basic(const ElasticJobView& job) const {
    return perf::PerformanceModel(*job.training->model, *view_.machines, *job.training->coefficients).throughput(job.training->basic);
  }
  double utility(double speed) const {
    const double p = options_.power;
    return std::abs(p - 1) < 1e-9 ? std::log(speed) : std::pow(speed, 1 - p) / (1 - p);
  }
  double weight(const ElasticJobView& job) const {
    double w = std::pow(job.basic_gpus, options_.size);
    const double age = std::max(view_.now_s - job.started_s, 10.0);
    if (job.training->remaining_samples >= 0 && env("REM", 0) != 0)
      w *= std::pow(std::max(job.training->remaining_samples / speed_basic(job), 10.0), env("REM", 0));
    else
      w *= std::pow(age, options_.age);
    return w;
  }
  double loss(const ElasticJobView& job, const CompanionView& companion) const {
    const auto found = steps_.find(job.id);
    if (found != steps_.end())
      for (const Step& step : found->second)
        if (step.companion == &companion) {
          const double basic = found->second.front().before;
          return weight(job) * (utility(step.after / basic) - utility(step.before / basic)) / companion.held.gpus;
        }
    return 0;
  }

  /// FlexTrain, equation 14 with what the job's age tells of how long it goes on.
  bool worth_it(const Runner& runner) const {
    const ElasticJobView& job = *runner.job;
    const double now = perf::PerformanceModel(*job.training->model, *view_.machines, *job.training->coefficients).throughput(job.training->current);
    const double speedup = runner.throughput / now;
    if (speedup < env("LEAST", 1.02)) return false;
    const RedeploymentCost cost = redeployment_cost(redeployment_, *job.training->model, *job.training->coefficients,
                                                    job.training->current, runner.layout, *view_.machines);
    const double needed = speedup / (speedup - 1) * cost.pause_s + cost.delay_s * env("DELAY", 1);
    if (job.training->remaining_samples >= 0) return job.training->remaining_samples / now > needed;
    return needed < options_.horizon * std::max(view_.now_s - job.started_s, 0.0) + env("H0", 0);
  }

  struct Best {
    double benefit = 0;
    std::size_t runner = 0;
    long as_of = 0;
    Offer offer;
    bool operator<(const Best& other) const {
      return benefit != other.benefit ? benefit < other.benefit : runner > other.runner;
    }
  };

  std::optional<Best> best_of(Expansions& expansions, std::size_t index) {
    const Runner& runner = expansions.runners()[index];
    std::optional<Best> best;
    const int have = runner.layout.gpu_count();
    const double basic = speed_basic(*runner.job), w = weight(*runner.job);
    for (Offer& offer : expansions.offers(runner, options_.most * have)) {
      const double benefit = w * (utility(offer.throughput / basic) - utility(runner.throughput / basic)) / offer.gpus;
      const double b = benefit_of_a_doubling(have, have + offer.gpus, runner.throughput, offer.throughput);
      if (b < env("LEASTB", 0.0)) continue;
      if (benefit > 1e-12 && (!best || benefit > best->benefit)) best = Best{benefit, index, expansions.changes(), std::move(offer)};
    }
    return best;
  }

  void scale_out(Expansions& expansions, const std::set<JobId>& left_out) {
    std::priority_queue<Best> queue;
    for (std::size_t i = 0; i < expansions.runners().size(); ++i)
      if (!left_out.contains(expansions.runners()[i].job->id))
        if (auto best = best_of(expansions, i)) queue.push(std::move(*best));
    while (!queue.empty()) {
      Best best = queue.top();
      queue.pop();
      if (best.as_of == expansions.changes()) expansions.lend(expansions.runners()[best.runner], best.offer);
      if (auto next = best_of(expansions, best.runner)) queue.push(std::move(*next));
    }
  }

  void rebalance() {}

  const ClusterView& view_;
  const Swell::Options& options_;
  const ScaleTables& growing_;
  const ScaleTables& grown_;
  Room room_;
  std::map<JobId, std::vector<Step>> steps_;
  static constexpr Redeployment redeployment_ = Redeployment::local_reuse;
};

std::unique_ptr<const planner::Solver> incremental(int most_free) {
  planner::Incremental::Options options;
  options.most_free = most_free;
  return std::make_unique<planner::Incremental>(options);
}

}  // namespace

Swell::Swell() : Swell(Options{}) {}
Swell::Swell(Options options) : options_(options), growing_(incremental(1 << 20)), grown_(incremental(1 << 20)) {
  options_.power = env("POWER", 1);
  options_.size = env("SIZE", 0);
  options_.age = env("AGE", 0);
  options_.horizon = env("HORIZON", 1);
  options_.most = static_cast<int>(env("MOST", 1));
}

Decisions Swell::decide(const ClusterView& view) const { return Decision(view, options_, growing_, grown_).run(); }

}  // namespace swell::policy
