// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "sim/state.h"

namespace swell::sim {

/// Decisions not yet applied: a policy made them on a view, and they are applied once the time to
/// decide has passed.
struct Pending {
  policy::SimulatedDecisions decisions;
  std::map<policy::JobId, long> versions;  ///< Job::version of the jobs in the view
};

/// Applies decisions of a lending policy. Refuses those that became out of date meanwhile, as the
/// controller does: for a job that changed, or a GPU that is taken or that a pending job waits for.
void apply_lending(State& state, const Pending& pending, const std::vector<Start>& waiting);

/// Moves basic allocations, as a policy that defragments asks for. Refuses what became out of date.
void apply_migrations(State& state, const Pending& pending);

/// Reclaims companions where a pending job waits and no policy has made room for it, the latest
/// first, as Slurm's own preemption does.
void preempt_for(State& state, const std::vector<Start>& waiting);

/// Applies the plans of a policy that replaces the base scheduler, all at one moment: a job whose
/// plan changes holds its new GPUs at once and stands still for the whole redeployment.
void apply_placing(State& state, const Pending& pending);

}  // namespace swell::sim
