// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "sim/state.h"

namespace swell::sim {

/// Changes of plan, at the cost of the policy's way of redeployment. Leaving companions hold state,
/// so their GPUs are given back at the end of the pause.

/// Begins to move `job` to the plan `next`, whose GPUs it holds already. A move that is still
/// warming up is replaced by this one. REQUIRES: no move has paused training.
void begin_move(State& state, Job& job, plan::Layout next, Cause cause);
/// Handles the end of warming: new workers are ready, training stops, state moves.
void warmed(State& state, Job& job);
/// Handles the end of the pause: the state is in place, training goes on.
void moved(State& state, Job& job);

/// Plan that `job` would run on the GPUs it keeps: `wanted` where it is given and uses only these;
/// otherwise the best, by its coefficients, of the plans it ran before and the symmetric ones.
plan::Layout plan_for(State& state, const Job& job, const plan::Layout* wanted);

/// Reclaims companions of `job`, as soon as its present move allows. `wanted`: the plan to run
/// then; null: plan_for() chooses.
void reclaim(State& state, Job& job, const std::set<policy::JobId>& companions,
             const plan::Layout* wanted, Cause cause);

/// Compares what the job does with lent GPUs with what was predicted, as the controller does with
/// an agent's report: a job that falls short for a while gives back all of them.
void report(State& state, Job& job);
/// Records the speed of the plan that the job runs.
void measure(State& state, Job& job);

/// Throws Broken unless `layout` trains `job` wholly: all layers, all samples, whole groups, no GPU
/// twice. No policy may propose anything else.
void check_plan(const State& state, const Job& job, const plan::Layout& layout);

/// Seconds of one iteration under the plan, as the policy's model predicts it from the job's
/// profile.
double predicted_s(const State& state, const Job& job, const plan::Layout& layout);

/// Whether every GPU of `inner` is in `outer`.
bool within(const GpuSet& inner, const GpuSet& outer) noexcept;

}  // namespace swell::sim
