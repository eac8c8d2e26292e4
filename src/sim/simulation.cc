// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/simulation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>

#include "core/count_of.h"
#include "sim/decisions.h"
#include "sim/explain.h"
#include "sim/failures.h"
#include "sim/invariants.h"
#include "sim/moves.h"
#include "sim/views.h"

namespace swell::sim {

namespace {

// Least time between decisions, as in the controller: events come in bursts.
constexpr double kDebounce_s = 1;
constexpr double kFixedDecision_s = 0.5;  // time of every decision under fixed_decision_time
constexpr double kLongest_s = 3.2e8;      // ten years: jobs that run then never end

class Simulation {
 public:
  explicit Simulation(const Setup& setup)
      : state_(setup), failures_(state_, setup.failures_per_day, setup.seed) {}

  Outcome run() {
    while (state_.unfinished > 0) {
      if (state_.events.empty() || state_.events.top().at_s > kLongest_s) never_ends();
      const Event event = state_.events.top();
      state_.events.pop();
      pass_time(event.at_s);
      happen(event);
      react();
      check_invariants(state_);
      note_holdings();
      ++state_.outcome.events;
    }
    for (const Job& job : state_.jobs) state_.outcome.jobs.push_back(job.outcome);
    return std::move(state_.outcome);
  }

 private:
  void pass_time(double to_s) {
    const double passed = to_s - state_.now_s;
    state_.outcome.used_gpu_s += passed * state_.ledger.used();
    state_.outcome.lent_gpu_s += passed * state_.ledger.used_by_companions();
    note_waiting(state_, waiting_, passed);
    if (state_.setup.replaces())
      for (const policy::JobId id : state_.running) count_held(state_.job(id), passed);
    state_.now_s = to_s;
  }

  void count_held(Job& job, double passed) {
    if (job.basic.empty() || job.profiling) return;
    job.held_s.resize(state_.cluster.types().size());
    const int type = state_.cluster.node(job.basic.front().node).gpus.front();
    job.held_s[static_cast<std::size_t>(type)] += passed;
  }

  void happen(const Event& event) {
    using Kind = Event::Kind;
    Job* job = event.job != 0 ? &state_.job(event.job) : nullptr;
    const bool true_still = job && job->phase == Phase::running && event.stamp == job->version;
    switch (event.kind) {
      case Kind::submission: state_.note_submission(*job); return state_.make_pending(*job);
      case Kind::profile:
        if (job->phase != Phase::running || job->measured.coefficients ||
            event.at_s != job->measured.profiled_s)
          return;
        if (job->progress.rate() <= 0)
          return;  // it stands still, and reports of the plan that it changes to
        job->measured.coefficients =
            job->truth.profile(job->current, state_.setup.prediction_error, state_.setup.reporting);
        measure(state_, *job);
        state_.to_decide = true;
        return;
      case Kind::report:
        if (true_still && job->change.move == Move::none) report(state_, *job);
        return;
      case Kind::tabled:
        if (true_still && job->profiling) state_.end_profile(*job);
        return;
      case Kind::trusted: state_.to_decide = true; return;
      case Kind::end:
        if (job->phase == Phase::running && event.stamp == job->progress.stamp()) state_.end(*job);
        return;
      case Kind::warmed:
        if (true_still && job->change.move == Move::warming) warmed(state_, *job);
        return;
      case Kind::moved:
        if (true_still && job->change.move == Move::paused) moved(state_, *job);
        return;
      case Kind::decide: return decide();
      case Kind::decided: return apply();
      case Kind::node_down: return failures_.node_down(state_, event.node);
      case Kind::node_up: return failures_.node_up(state_, event.node);
    }
  }

  /// Starts the jobs that can start, and has the policy decide. A start alone gives most policies
  /// nothing to decide: the job cannot grow before its profile is ready.
  void react() {
    const bool changed = std::exchange(state_.changed, false);
    if (changed && !state_.setup.replaces()) start_jobs();
    const bool to_decide = std::exchange(state_.to_decide, false);
    if (!state_.setup.policy || state_.unfinished == 0) return;
    if (!(changed && (state_.setup.replaces() || !state_.pending.empty())) && !to_decide) return;
    if (deciding_) stale_ = true;
    else plan_decision();
  }

  void plan_decision() {
    deciding_ = true;
    const double round = state_.setup.policy->simulation_traits().round_s;
    double at_s = round > 0 ? std::ceil(state_.now_s / round) * round : state_.now_s;
    at_s = std::max(at_s, last_decision_s_ + (round > 0 ? round : kDebounce_s));
    state_.plan_event(at_s, Event::Kind::decide);
  }

  void start_jobs() {
    waiting_.clear();
    if (state_.pending.empty()) return;
    std::vector<Release> releases;
    for (policy::JobId id : state_.running) {
      const Job& job = state_.job(id);
      for (const NodeGpus& part : job.basic)
        releases.push_back(
            {job.times.started_s + job.limit_s, part.node, std::popcount(part.gpus)});
    }
    const BaseScheduler base{state_.setup.backfill};
    const std::vector<Start> starts =
        base.plan(queue_of(state_), state_.ledger, releases, state_.cluster, state_.now_s);
    for (const Start& start : starts) {
      if (start.idle) start_on(start);
      else waiting_.push_back(start);
    }
  }

  void start_on(const Start& start) {
    Job& job = state_.job(start.id);
    GpuSet gpus;
    for (int node : start.nodes)
      gpus.push_back({node, lowest(state_.ledger.free(node), start.per_node)});
    std::sort(gpus.begin(), gpus.end(),
              [](const NodeGpus& a, const NodeGpus& b) { return a.node < b.node; });
    auto plan = basic_layout(job.type, gpus, state_.cluster);
    if (!plan)
      throw Broken(
          fmt::format("job {} ({}) does not fit the memory of the GPUs that it would start on",
                      start.id, job.type.model->name));
    state_.start(job, gpus, std::move(*plan));
  }

  void decide() {
    last_decision_s_ = state_.now_s;
    stale_ = false;
    const policy::ClusterView view = make_view(state_, queue_of(state_));
    const auto begin = std::chrono::steady_clock::now();
    in_flight_.decisions = state_.setup.policy->simulate(view);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    in_flight_.versions.clear();
    for (const auto& job : view.jobs) in_flight_.versions[job.id] = state_.job(job.id).version;
    for (const auto& demand : view.queue) {
      in_flight_.versions[demand.id] = state_.job(demand.id).version;
      offered_.push_back(demand.id);
    }
    const double takes =
        std::max(state_.setup.fixed_decision_time ? kFixedDecision_s : took.count(),
                 in_flight_.decisions.search_s);
    state_.outcome.decision_s.push_back(std::max(took.count(), in_flight_.decisions.search_s));
    state_.plan_event(state_.now_s + takes, Event::Kind::decided);
  }

  void apply() {
    deciding_ = false;
    for (policy::JobId id : std::exchange(offered_, {})) state_.job(id).offered = true;
    if (state_.setup.replaces()) {
      apply_placing(state_, in_flight_);
    } else {
      start_jobs();
      apply_lending(state_, in_flight_, waiting_);
      apply_migrations(state_, in_flight_);
      preempt_for(state_, waiting_);
    }
    const bool again =
        state_.setup.policy->simulation_traits().round_s > 0 && state_.unfinished > 0;
    if (stale_ || again) plan_decision();
  }

  void note_holdings() {
    auto note = [&](const Job& job, int basic, int lent) {
      Held& known = held_[job.spec.id];
      if (known.basic == basic && known.lent == lent) return;
      known = {basic, lent};
      state_.outcome.holdings.push_back({state_.now_s, job.spec.id, basic, lent});
    };
    for (auto it = held_.begin(); it != held_.end();) {
      const Job& job = state_.job(it->first);
      if (job.phase == Phase::running) {
        ++it;
        continue;
      }
      note(job, 0, 0);
      it = held_.erase(it);
    }
    for (policy::JobId id : state_.running)
      note(state_.job(id), count(state_.job(id).basic), state_.job(id).lent_gpus());
  }

  [[noreturn]] void never_ends() const {
    std::string who;
    for (policy::JobId id : state_.pending) who += fmt::format("{}{}", who.empty() ? "" : ", ", id);
    throw Broken(fmt::format("at {:.0f} s, {} are left that never end (pending: {})", state_.now_s,
                             count_of(state_.unfinished, "job"), who.empty() ? "none" : who));
  }

  struct Held {
    int basic = 0, lent = 0;
  };
  State state_;
  Failures failures_;
  std::vector<Start> waiting_;  ///< jobs that only companions keep from starting
  Pending in_flight_;
  std::vector<policy::JobId> offered_;
  bool deciding_ = false, stale_ = false;
  double last_decision_s_ = -1e9;
  std::map<policy::JobId, Held> held_;
};

}  // namespace

Result<Outcome> simulate(const Setup& setup) {
  try {
    return Simulation(setup).run();
  } catch (const Broken& broken) { return Error(broken.what()); }
}

}  // namespace swell::sim
