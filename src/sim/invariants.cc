// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/invariants.h"

#include <fmt/format.h>

#include "core/count_of.h"
#include "sim/moves.h"

namespace swell::sim {

namespace {

[[noreturn]] void broken(const State& state, const Job& job, const std::string& what) {
  throw Broken(fmt::format("at {:.3f} s, job {} ({}): {}", state.now_s, job.spec.id,
                           job.type.model->name, what));
}

int check_held(const State& state, const Job& job, const NodeGpus& part, Holder holder) {
  if (!state.ledger.is_up(part.node))
    broken(state, job, fmt::format("holds GPUs of node {}, which is down", part.node));
  for (plan::GpuMask left = part.gpus; left != 0; left &= left - 1)
    if (const int gpu = std::countr_zero(left); !(state.ledger.holder(part.node, gpu) == holder))
      broken(state, job,
             fmt::format("GPU {} of node {} is in two allocations: job {}'s too", gpu, part.node,
                         state.ledger.holder(part.node, gpu).job));
  return std::popcount(part.gpus);
}

}  // namespace

void check_invariants(const State& state) {
  int held = 0;
  for (policy::JobId id : state.running) {
    const Job& job = state.jobs[id - 1];
    if (job.phase != Phase::running) broken(state, job, "is listed as running and is not");
    int basic = 0;
    for (const NodeGpus& part : job.basic) basic += check_held(state, job, part, {id, 0});
    if (!state.setup.replaces() && basic != job.type.gpus)
      broken(
          state, job,
          fmt::format("holds {} of its basic demand of {}", count_of(basic, "GPU"), job.type.gpus));
    held += basic;
    for (const LentGpus& companion : job.companions)
      held += check_held(state, job, companion.gpus, {id, companion.id});
    const bool trains = job.progress.rate() > 0;
    if (trains && !within(gpus_of(job.current), job.held(true)))
      broken(state, job, "trains on a GPU that it does not hold");
  }
  if (held != state.ledger.used())
    throw Broken(fmt::format(
        "at {:.3f} s, {} are in use and running jobs hold {}: a companion outlives its parent",
        state.now_s, count_of(state.ledger.used(), "GPU"), held));
}

}  // namespace swell::sim
