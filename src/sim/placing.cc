// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>

#include "core/redeploy/redeployment.h"
#include "sim/decisions.h"
#include "sim/explain.h"
#include "sim/moves.h"

namespace swell::sim {

namespace {

/// Selects plans that do not conflict: drops plans until no GPU is wanted twice; a job whose plan
/// is dropped keeps what it has.
class Agreement {
 public:
  Agreement(const State& state, const Pending& pending) : state_(state) {
    for (const policy::NewPlan& plan : pending.decisions.plans) {
      if (plan.job == 0 || plan.job > state.jobs.size()) continue;
      const Job& job = state.jobs[plan.job - 1];
      const auto seen = pending.versions.find(plan.job);
      const bool current = seen != pending.versions.end() && seen->second == job.version &&
                           job.change.move == Move::none &&
                           (job.phase == Phase::running ||
                            (job.phase == Phase::pending && !plan.layout.stages.empty()));
      if (!current) {
        ++refused_;
        continue;
      }
      check_plan_if_any(job, plan.layout);
      wanted_.push_back(&plan);
    }
    while (drop_one()) ++refused_;
  }
  const std::vector<const policy::NewPlan*>& plans() const { return wanted_; }
  int refused() const { return refused_; }

 private:
  void check_plan_if_any(const Job& job, const plan::Layout& layout) const {
    if (!layout.stages.empty() && !state_.awaits_table(job)) check_plan(state_, job, layout);
  }

  bool drop_one() {
    std::set<policy::JobId> planned;
    for (const auto* plan : wanted_) planned.insert(plan->job);
    std::vector<plan::GpuMask> used(static_cast<std::size_t>(state_.ledger.nodes()), 0);
    for (policy::JobId id : state_.running)
      if (!planned.contains(id))
        for (const NodeGpus& part : state_.jobs[id - 1].basic)
          used[static_cast<std::size_t>(part.node)] |= part.gpus;
    for (auto plan = wanted_.begin(); plan != wanted_.end(); ++plan) {
      const GpuSet set = gpus_of((*plan)->layout);
      const bool fits = std::all_of(set.begin(), set.end(), [&](const NodeGpus& part) {
        return state_.ledger.is_up(part.node) &&
               (used[static_cast<std::size_t>(part.node)] & part.gpus) == 0;
      });
      if (!fits) {
        wanted_.erase(plan);
        return true;
      }
      for (const NodeGpus& part : set) used[static_cast<std::size_t>(part.node)] |= part.gpus;
    }
    return false;
  }

  const State& state_;
  std::vector<const policy::NewPlan*> wanted_;
  int refused_ = 0;
};

/// Runs `job` with `layout`: starts it, moves it, or resumes it where it ran before.
void place(State& state, Job& job, const plan::Layout& layout) {
  const bool starts = job.phase == Phase::pending, ran = job.ran;
  const plan::Layout before = job.current;
  const GpuSet gpus = gpus_of(layout);
  if (state.awaits_table(job)) return state.start_profile(job, gpus);
  double pause_s = redeploy::kInitialize_s;
  if (starts) {
    state.start(job, gpus, layout);
    // A layout that does not fit memory ends in its first iteration; moved() sees to it.
    if (!ran && job.truth.fits(layout)) return;
  } else {
    state.ledger.take(gpus, {job.spec.id, 0});
    job.basic = gpus;
  }
  state.set_training(job, false);
  if (ran) {
    const auto cost =
        redeploy::cost_of(state.setup.policy->simulation_traits().redeployment, *job.type.expected,
                          before, layout, state.cluster, redeploy::ranks_of(*job.type.model));
    pause_s = cost.delay_s + cost.pause_s;
    job.current = before;
  }
  job.change.next = layout;
  job.change.move = Move::paused;
  ++job.version;
  if (!starts) note_change(state, job, layout, {Cause::Why::placed});
  note_idle(state, job, pause_s, pause_s * count(gpus));
  state.plan_event(state.now_s + pause_s, Event::Kind::moved, job.spec.id, job.version);
}

}  // namespace

void apply_placing(State& state, const Pending& pending) {
  const Agreement agreed(state, pending);
  state.outcome.refused += agreed.refused();
  std::vector<const policy::NewPlan*> placed;
  for (const policy::NewPlan* plan : agreed.plans()) {
    Job& job = state.job(plan->job);
    if (job.phase == Phase::running) {
      if (plan->layout == job.current) continue;
      job.progress.advance(state.now_s);
      state.ledger.give_back(job.basic, {plan->job, 0});
      job.basic.clear();
      if (plan->layout.stages.empty()) {
        state.set_training(job, false);
        end_change(state, job);
        std::erase(state.running, plan->job);
        state.make_pending(job);
        continue;
      }
    }
    placed.push_back(plan);
  }
  for (const policy::NewPlan* plan : placed) place(state, state.job(plan->job), plan->layout);
}

}  // namespace swell::sim
