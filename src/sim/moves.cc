// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/moves.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/count_of.h"
#include "core/perf/performance_model.h"
#include "core/redeploy/redeployment.h"
#include "sim/explain.h"
#include "sim/failures.h"
#include "sim/growth_pace.h"

namespace swell::sim {

namespace {

redeploy::Cost cost_of(const State& state, const Job& job, const plan::Layout& from,
                       const plan::Layout& to) {
  const redeploy::Ranks ranks = redeploy::ranks_of(*job.type.model);
  if (const auto measured = state.setup.measured_way())
    return redeploy::measured_cost_of(*measured, *job.type.expected, from, to, state.cluster,
                                      ranks);
  const auto method = state.setup.policy ? state.setup.policy->simulation_traits().redeployment
                                         : redeploy::Method::checkpoint;
  return redeploy::cost_of(method, *job.type.expected, from, to, state.cluster, ranks);
}

/// Number of GPUs that `next` uses and the running plan does not.
int new_gpus(const Job& job) {
  return std::max(0, count(job.held(true)) - job.current.gpu_count());
}

void pause(State& state, Job& job, double pause_s) {
  state.set_training(job, false);
  job.change.move = Move::paused;
  note_idle(state, job, pause_s, pause_s * count(job.held(true)));
  state.plan_event(state.now_s + pause_s, Event::Kind::moved, job.spec.id, job.version);
}

/// Handles a plan that does not fit memory: the new programs end with an error in their first
/// iteration. The job goes back to its basic plan, gives its lent GPUs back, and is lent nothing
/// any more, since the predictions for it are wrong.
void out_of_memory(State& state, Job& job) {
  job.barred = true;
  job.change.late.clear();
  for (LentGpus& companion : job.companions) companion.leaving = true;
  begin_move(state, job, job.basic_plan, {Cause::Why::no_memory});
}

}  // namespace

double predicted_s(const State& state, const Job& job, const plan::Layout& layout) {
  const auto& coefficients =
      job.measured.coefficients ? *job.measured.coefficients : *job.type.expected;
  const perf::Sends sends =
      state.setup.policy ? state.setup.policy->simulation_traits().sends : perf::Sends::ignored;
  return perf::PerformanceModel(*job.type.model, state.cluster, coefficients, sends)
      .iteration_time(layout)
      .total();
}

bool within(const GpuSet& inner, const GpuSet& outer) noexcept {
  return std::all_of(inner.begin(), inner.end(), [&](const NodeGpus& part) {
    return std::any_of(outer.begin(), outer.end(), [&](const NodeGpus& there) {
      return there.node == part.node && (part.gpus & ~there.gpus) == 0;
    });
  });
}

void check_plan(const State& state, const Job& job, const plan::Layout& layout) {
  int layers = 0;
  std::map<int, plan::GpuMask> seen;
  auto refuse = [&](const std::string& why) {
    throw Broken(fmt::format("at {:.3f} s, job {} ({}) would run a plan in which {}", state.now_s,
                             job.spec.id, job.type.model->name, why));
  };
  for (const plan::StageLayout& stage : layout.stages) {
    layers += stage.layers;
    int samples = 0;
    if (stage.layers < 1) refuse("a stage has no layers");
    for (const plan::GroupLayout& group : stage.groups) {
      samples += group.local_batch;
      if (group.node < 0 || group.node >= state.ledger.nodes() ||
          (group.gpus & ~state.ledger.all(group.node)) != 0)
        refuse("a group has GPUs that are not there");
      if (std::popcount(group.gpus) != stage.tp)
        refuse(fmt::format("a group has {} at a TP degree of {}",
                           count_of(std::popcount(group.gpus), "GPU"), stage.tp));
      if ((seen[group.node] & group.gpus) != 0) refuse("a GPU is in two groups");
      seen[group.node] |= group.gpus;
    }
    if (samples * layout.micro_batches != job.type.model->global_batch)
      refuse(fmt::format("a stage has {} in each of {}, of a global batch of {}",
                         count_of(samples, "sample"), count_of(layout.micro_batches, "micro-batch"),
                         job.type.model->global_batch));
  }
  if (layers != job.type.model->layers)
    refuse(fmt::format("there are {} of {}", layers, count_of(job.type.model->layers, "layer")));
}

void begin_move(State& state, Job& job, plan::Layout next, Cause cause) {
  if (job.change.move == Move::paused)
    throw Broken(
        fmt::format("job {} would change its plan while it changes its plan", job.spec.id));
  ++job.version;
  note_change(state, job, next, cause);
  const redeploy::Cost cost = cost_of(state, job, job.current, next);
  job.change.next = std::move(next);
  job.change.cost = cost;
  if (cost.delay_s <= 0) return pause(state, job, cost.pause_s);
  job.change.move = Move::warming;
  note_idle(state, job, 0, cost.delay_s * new_gpus(job));
  state.plan_event(state.now_s + cost.delay_s, Event::Kind::warmed, job.spec.id, job.version);
}

void warmed(State& state, Job& job) {
  job.change.cost.pause_s = cost_of(state, job, job.current, job.change.next).pause_s;
  pause(state, job, job.change.cost.pause_s);
}

void moved(State& state, Job& job) {
  job.change.move = Move::none;
  if (const auto way = state.setup.measured_way()) {
    job.pauses.changed(*way, job.change.cost, state.now_s);
    state.pauses.changed(job.spec.id, *way, job.change.cost, state.now_s);
  }
  job.history.push_back(std::move(job.current));
  job.current = std::move(job.change.next);
  job.times.reconfigured_s = state.now_s;
  ++job.version;
  ++job.outcome.reconfigurations;
  ++state.outcome.reconfigurations;
  state.outcome.prediction_errors.push_back(
      std::abs(predicted_s(state, job, job.current) / job.truth.iteration_s(job.current) - 1));
  for (const LentGpus& companion : job.companions)
    if (companion.leaving) {
      state.ledger.give_back(companion.gpus, {job.spec.id, companion.id});
      wait_after_loss(state, job);
    }
  std::erase_if(job.companions, [](const LentGpus& companion) { return companion.leaving; });
  if (!job.truth.fits(job.current)) {
    ++state.outcome.out_of_memory;
    if (state.setup.replaces() && !job.barred) {
      // Its program ends; there is no basic allocation to go on with.
      job.barred = true;
      return requeue(state, job);
    }
    if (!state.setup.replaces() && job.current != job.basic_plan) return out_of_memory(state, job);
  }
  state.set_training(job, true);
  state.changed = state.to_decide = true;
  state.plan_report(job);
  if (state.setup.slurmctld() != policy::SimulationTraits::Slurmctld::none) state.plan_profile(job);
  if (!job.change.late.empty())
    reclaim(state, job, std::exchange(job.change.late, {}), nullptr, job.change.late_cause);
}

void measure(State& state, Job& job) {
  if (job.current == job.basic_plan) job.measured.basic_known = true;
  policy::add_speed(job.measured.speeds, {job.current, job.type.model->global_batch /
                                                           job.truth.iteration_s(job.current)});
  if (job.measured.coefficients)
    job.measured.corrected = policy::corrected(job.measured.coefficients, *job.type.model,
                                               state.cluster, job.measured.speeds);
}

void report(State& state, Job& job) {
  measure(state, job);
  state.to_decide = true;
  std::set<policy::JobId> lent;
  for (const LentGpus& companion : job.companions)
    if (!companion.leaving) lent.insert(companion.id);
  std::optional<policy::Speedup> speedup;
  if (job.measured.basic_known && !lent.empty())
    speedup = {predicted_s(state, job, job.basic_plan) / predicted_s(state, job, job.current),
               job.truth.iteration_s(job.basic_plan) / job.truth.iteration_s(job.current)};
  job.measured.trust.heard(speedup, state.now_s, state.setup.max_shortfall);
  if (job.measured.trust.is_over(state.now_s) && !lent.empty()) {
    job.measured.trust.reclaimed(state.now_s);
    ++state.outcome.given_back;
    reclaim(state, job, lent, nullptr, {Cause::Why::fell_short});
    state.plan_event(job.measured.trust.until(), Event::Kind::trusted);
  } else if (!job.measured.trust.may_grow(state.now_s) &&
             job.measured.trust.until() > state.now_s) {
    state.plan_event(job.measured.trust.until(), Event::Kind::report, job.spec.id, job.version);
  }
}

plan::Layout plan_for(State& state, const Job& job, const plan::Layout* wanted) {
  const GpuSet kept = job.held(false);
  if (wanted && !wanted->stages.empty() && within(gpus_of(*wanted), kept)) return *wanted;
  const plan::Layout* best = &job.basic_plan;
  double best_s = predicted_s(state, job, job.basic_plan);
  auto consider = [&](const plan::Layout& layout) {
    if (!within(gpus_of(layout), kept)) return;
    const double seconds = predicted_s(state, job, layout);
    if (seconds >= best_s) return;
    best = &layout;
    best_s = seconds;
  };
  consider(job.current);
  for (const plan::Layout& layout : job.history) consider(layout);
  const auto& coefficients =
      job.measured.coefficients ? *job.measured.coefficients : *job.type.expected;
  const auto anew = count(kept) > job.type.gpus
                        ? best_symmetric_layout(job.type, coefficients, kept, state.cluster)
                        : std::nullopt;
  if (anew) consider(*anew);
  return *best;
}

void reclaim(State& state, Job& job, const std::set<policy::JobId>& ids, const plan::Layout* wanted,
             Cause cause) {
  if (job.change.move == Move::paused) {
    job.change.late.insert(ids.begin(), ids.end());
    job.change.late_cause = cause;
    return;
  }
  bool any = false;
  const GpuSet working = gpus_of(job.current);
  for (LentGpus& companion : job.companions) {
    if (!ids.contains(companion.id) || companion.leaving) continue;
    companion.leaving = any = true;
  }
  if (!any) return;
  wait_after_loss(state, job);
  // Initializing workers hold no state yet: their GPUs are free at once.
  std::erase_if(job.companions, [&](const LentGpus& companion) {
    const bool idle = std::none_of(working.begin(), working.end(), [&](const NodeGpus& part) {
      return part.node == companion.gpus.node && (part.gpus & companion.gpus.gpus) != 0;
    });
    if (!companion.leaving || !idle) return false;
    state.ledger.give_back(companion.gpus, {job.spec.id, companion.id});
    state.changed = state.to_decide = true;
    return true;
  });
  plan::Layout next = plan_for(state, job, wanted);
  ++job.version;
  if (next == job.current) {  // the training plan does not change
    job.change.move = Move::none;
    note_change(state, job, next, cause);
  } else {
    begin_move(state, job, std::move(next), cause);
  }
}

}  // namespace swell::sim
