// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/growth_pace.h"

#include <algorithm>

#include "core/redeploy/redeployment.h"

namespace swell::sim {

namespace {

using Slurmctld = policy::SimulationTraits::Slurmctld;

bool is_consenting(const Job& job) noexcept { return job.wanted_gpus > job.type.gpus; }

void wait_to_grow(State& state, Job& job, double wait_s) {
  job.grow_after = std::max(job.grow_after, state.now_s + wait_s);
  state.plan_event(job.grow_after, Event::Kind::trusted);
}

}  // namespace

bool shows_starting(const State& state, const Job& job) noexcept {
  return job.spec.elastic && state.setup.slurmctld() == Slurmctld::none &&
         job.starting(state.now_s, redeploy::kInitialize_s);
}

bool begins_with_offer(const State& state, const Job& job) noexcept {
  return job.starting(state.now_s, state.setup.slurmctld() == Slurmctld::none
                                       ? redeploy::kInitialize_s
                                       : state.setup.clocks->first_offer_s);
}

void wait_after_grant(State& state, Job& job) {
  if (state.setup.slurmctld() == Slurmctld::none) return;
  const Clocks& clocks = *state.setup.clocks;
  const bool all_wanted = is_consenting(job) && count(job.held(false)) <= job.wanted_gpus;
  wait_to_grow(state, job,
               all_wanted ? clocks.grant_expiry_s
                          : std::max(clocks.growth_interval_s, clocks.grant_expiry_s));
}

void wait_after_loss(State& state, Job& job) {
  if (state.setup.slurmctld() == Slurmctld::none) return;
  const bool owed = is_consenting(job) && count(job.held(false)) < job.wanted_gpus;
  if (!owed) wait_to_grow(state, job, state.setup.clocks->growth_interval_s);
}

}  // namespace swell::sim
