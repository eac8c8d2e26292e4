// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "sim/state.h"

namespace swell::sim {

/// Whether the job is one that has just started, to a policy that lends to such jobs.
bool shows_starting(const State& state, const Job& job) noexcept;
/// Whether the job would begin anew, at no cost, with what it is lent now.
bool begins_with_offer(const State& state, const Job& job) noexcept;
/// Has the job wait for its next growth after it was lent GPUs: for the offer alone where it has no
/// more than it wanted and consented to fewer, as Decider::grant().
void wait_after_grant(State& state, Job& job);
/// Likewise after it has given some back, where it is owed none, as ElasticJob::stay().
void wait_after_loss(State& state, Job& job);

}  // namespace swell::sim
