// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/failures.h"

#include <algorithm>

#include "core/redeploy/redeployment.h"
#include "sim/explain.h"

namespace swell::sim {

namespace {

constexpr double kRepair_s = 3600;

void lose_progress(State& state, Job& job) {
  state.set_training(job, false);
  job.progress.fall_back(state.now_s);
}

void fall_back(State& state, Job& job) {
  end_change(state, job);  // what is lost now is not of its doing
  lose_progress(state, job);
  state.drop_companions(job);
  const auto cost =
      redeploy::cost_of(redeploy::Method::checkpoint, *job.type.expected, job.current,
                        job.basic_plan, state.cluster, redeploy::ranks_of(*job.type.model));
  job.change.next = job.basic_plan;
  note_change(state, job, job.change.next, {Cause::Why::node_failed});
  job.change.move = Move::paused;
  ++job.version;
  const double pause_s = cost.delay_s + cost.pause_s;
  note_idle(state, job, pause_s, pause_s * job.type.gpus);
  state.plan_event(state.now_s + pause_s, Event::Kind::moved, job.spec.id, job.version);
}

}  // namespace

void requeue(State& state, Job& job) {
  if (job.profiling) job.outcome.waited_s += state.now_s - job.times.pending_since_s;
  job.profiling = false;
  end_change(state, job);
  lose_progress(state, job);
  state.drop_companions(job);
  state.ledger.give_back(job.basic, {job.spec.id, 0});
  job.basic.clear();
  job.change.move = Move::none;
  std::erase(state.running, job.spec.id);
  ++state.outcome.requeues;
  state.make_pending(job);
}

Failures::Failures(State& state, double per_node_and_day, std::uint64_t seed)
    : per_s_(per_node_and_day / 86400) {
  for (int node = 0; node < state.ledger.nodes(); ++node) {
    random_.push_back(Random{seed, kFailures, static_cast<std::uint64_t>(node)});
    if (per_s_ > 0)
      state.plan_event(random_.back().exponential(1 / per_s_), Event::Kind::node_down, 0, 0, node);
  }
}

void Failures::node_down(State& state, int node) {
  std::set<policy::JobId> basic, lent;
  for (policy::JobId id : state.running) {
    const Job& job = state.job(id);
    auto here = [node](const NodeGpus& part) { return part.node == node; };
    if (std::any_of(job.basic.begin(), job.basic.end(), here)) basic.insert(id);
    else if (std::any_of(job.companions.begin(), job.companions.end(),
                         [&](const LentGpus& one) { return here(one.gpus); }))
      lent.insert(id);
  }
  for (policy::JobId id : basic) requeue(state, state.job(id));
  for (policy::JobId id : lent) fall_back(state, state.job(id));
  state.ledger.set_up(node, false);
  state.changed = state.to_decide = true;
  state.plan_event(state.now_s + random_[static_cast<std::size_t>(node)].exponential(kRepair_s),
                   Event::Kind::node_up, 0, 0, node);
}

void Failures::node_up(State& state, int node) {
  state.ledger.set_up(node, true);
  state.changed = state.to_decide = true;
  state.plan_event(state.now_s + random_[static_cast<std::size_t>(node)].exponential(1 / per_s_),
                   Event::Kind::node_down, 0, 0, node);
}

}  // namespace swell::sim
