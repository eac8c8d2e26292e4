// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "sim/state.h"

namespace swell::sim {

/// A policy's decisions on the way: made on a view, applied once the time to decide has passed.
struct Pending {
  policy::Decisions decisions;
  std::map<policy::JobId, long> versions;  ///< of the jobs in the view
};

/// Applies what a lending policy decided. What became untrue meanwhile is refused, as the
/// controller does: a job that changed, a GPU that is taken or that a pending job waits for.
void apply_lending(State& state, const Pending& pending, const std::vector<Start>& waiting);

/// Takes companions back from where a pending job waits and no policy has made room for it, the
/// latest first: what Slurm's own preemption does.
void preempt_for(State& state, const std::vector<Start>& waiting);

/// Applies the plans of a policy that replaces the base scheduler, all at one moment: jobs whose
/// plan changes stand still for the whole redeployment while their new GPUs are theirs already.
void apply_placing(State& state, const Pending& pending);

}  // namespace swell::sim
