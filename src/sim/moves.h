// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "sim/state.h"

namespace swell::sim {

/// Changes of plan, at what they cost by the policy's way of redeployment. The GPUs of leaving
/// companions are given back at the end of the pause: until then they hold state.

/// Begins to move `job` to `next`, whose GPUs it holds already. A move that is still warming up is
/// given up for this one; one that has paused training must be over.
void begin_move(State& state, Job& job, plan::Layout next);
/// The new workers are ready: training stops, state moves.
void warmed(State& state, Job& job);
/// The state is in place: training goes on.
void moved(State& state, Job& job);

/// The plan that `job` would run on what it keeps: `wanted` where it is given and lies there, or
/// the best by its coefficients of those it ran before and the symmetric ones.
plan::Layout plan_for(State& state, const Job& job, const plan::Layout* wanted);

/// Takes companions of `job` back, as soon as its present move allows. `wanted`: the plan to run
/// then.
void reclaim(State& state, Job& job, const std::set<policy::JobId>& companions,
             const plan::Layout* wanted);

/// Whether `layout` trains `job` wholly: all layers, all samples, whole groups, no GPU twice.
/// Throws Broken otherwise: no policy may say such a thing.
void check_plan(const State& state, const Job& job, const plan::Layout& layout);

/// Whether every GPU of `inner` is in `outer`.
bool within(const GpuSet& inner, const GpuSet& outer) noexcept;

}  // namespace swell::sim
