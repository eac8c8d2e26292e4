// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>

#include "core/redeploy/redeployment.h"
#include "sim/decisions.h"
#include "sim/explain.h"
#include "sim/growth_pace.h"
#include "sim/moves.h"

namespace swell::sim {

namespace {

/// All decisions for one job.
struct Wanted {
  std::vector<const policy::Grant*> grants;
  std::set<policy::JobId> reclaims;
  Cause reclaimed_for;  ///< the reason for the first of these
  const plan::Layout* plan = nullptr;
};

Cause cause_of(const policy::Reclaim& reclaim) {
  using Why = policy::Reclaim::Why;
  if (reclaim.needed_by > 0) return {Cause::Why::pending_job, reclaim.needed_by};
  switch (reclaim.why) {
    case Why::another_job: break;
    case Why::owed: return {Cause::Why::owed};
    case Why::deadline: return {Cause::Why::deadline};
    case Why::brings_little: return {Cause::Why::brings_little};
    case Why::slows: return {Cause::Why::slows};
  }
  return {Cause::Why::another_job};
}

/// The reason for which the job gets another plan. `gpus`: those that it had before.
Cause cause_of_growth(const Job& job, const Wanted& change, int gpus) {
  if (change.grants.empty()) return {Cause::Why::better_plan};
  if (gpus < job.wanted_gpus) return {Cause::Why::wanted};
  return {job.measured.coefficients ? Cause::Why::gain : Cause::Why::unprofiled};
}

std::map<policy::JobId, Wanted> by_job(const State& state, const policy::Decisions& decisions) {
  std::map<policy::JobId, Wanted> changes;
  for (const policy::Reclaim& reclaim : decisions.reclaims) {
    const bool known = reclaim.needed_by > 0 && reclaim.needed_by <= state.jobs.size();
    if (known && state.jobs[reclaim.needed_by - 1].phase != Phase::pending)
      continue;  // it has started elsewhere
    Wanted& change = changes[reclaim.job];
    if (change.reclaims.empty()) change.reclaimed_for = cause_of(reclaim);
    change.reclaims.insert(reclaim.companion);
  }
  for (const policy::Grant& grant : decisions.grants) changes[grant.job].grants.push_back(&grant);
  for (const policy::NewPlan& plan : decisions.plans) changes[plan.job].plan = &plan.layout;
  return changes;
}

/// Chooses the GPUs of each grant: those that the plan names, then the lowest idle ones. Nothing
/// where one of them is not available.
std::optional<std::vector<NodeGpus>> gpus_for(const State& state, const Job& job,
                                              const Wanted& change) {
  std::map<int, plan::GpuMask> named;
  if (change.plan)
    for (const NodeGpus& part : gpus_of(*change.plan)) named[part.node] = part.gpus;
  for (const NodeGpus& part : job.held(true)) named[part.node] &= ~part.gpus;
  std::map<int, plan::GpuMask> taken;
  std::vector<NodeGpus> all;
  for (const policy::Grant* grant : change.grants) {
    if (grant->node < 0 || grant->node >= state.ledger.nodes()) return std::nullopt;
    if (state.kept[static_cast<std::size_t>(grant->node)] > 0) return std::nullopt;
    const plan::GpuMask idle = state.ledger.free(grant->node) & ~taken[grant->node];
    plan::GpuMask gpus = lowest(named[grant->node] & idle, grant->lent.gpus);
    gpus |= lowest(idle & ~gpus, grant->lent.gpus - std::popcount(gpus));
    if (std::popcount(gpus) != grant->lent.gpus || grant->lent.gpus < 1) return std::nullopt;
    taken[grant->node] |= gpus;
    named[grant->node] &= ~gpus;
    all.push_back({grant->node, gpus});
  }
  // A GPU of the plan that no grant brings was taken meanwhile.
  for (const auto& [node, left] : named)
    if (left != 0 && change.plan) return std::nullopt;
  return all;
}

/// Handles the start of a job on lent GPUs with a plan that does not fit memory: its first programs
/// end, and after the time that took it starts again on what it asked for.
void end_in_first_iteration(State& state, Job& job) {
  ++state.outcome.out_of_memory;
  job.barred = true;
  state.set_training(job, false);
  job.progress.fall_back(state.now_s);
  for (LentGpus& companion : job.companions) companion.leaving = true;
  job.change.next = job.basic_plan;
  note_change(state, job, job.change.next, {Cause::Why::no_memory});
  job.change.move = Move::paused;
  note_idle(state, job, redeploy::kInitialize_s, redeploy::kInitialize_s * count(job.held(true)));
  state.plan_event(state.now_s + redeploy::kInitialize_s, Event::Kind::moved, job.spec.id,
                   job.version);
}

}  // namespace

void apply_lending(State& state, const Pending& pending, const std::vector<Start>& waiting) {
  state.kept.assign(state.kept.size(), 0);
  for (const Start& start : waiting)
    for (int node : start.nodes) state.kept[static_cast<std::size_t>(node)] += start.per_node;

  for (const auto& [id, change] : by_job(state, pending.decisions)) {
    if (id == 0 || id > state.jobs.size()) continue;
    Job& job = state.job(id);
    const auto seen = pending.versions.find(id);
    const bool current = job.phase == Phase::running && job.change.move == Move::none &&
                         seen != pending.versions.end() && seen->second == job.version;
    if (!current) {
      ++state.outcome.refused;
      // A reclaim is never out of date.
      if (job.phase == Phase::running && !change.reclaims.empty())
        reclaim(state, job, change.reclaims, nullptr, change.reclaimed_for);
      continue;
    }
    if (change.plan) check_plan(state, job, *change.plan);
    const auto gpus = gpus_for(state, job, change);
    if (!gpus) {
      ++state.outcome.refused;
      if (!change.reclaims.empty())
        reclaim(state, job, change.reclaims, nullptr, change.reclaimed_for);
      continue;
    }
    const bool starting = begins_with_offer(state, job);
    const Cause cause = cause_of_growth(job, change, count(job.held(false)));
    for (std::size_t i = 0; i < gpus->size(); ++i) {
      const policy::JobId companion = state.next_companion++;
      state.ledger.take((*gpus)[i], {id, companion});
      job.companions.push_back({companion, (*gpus)[i], false, change.grants[i]->benefit});
    }
    if (!gpus->empty()) wait_after_grant(state, job);
    if (!change.reclaims.empty()) {
      reclaim(state, job, change.reclaims, change.plan, change.reclaimed_for);
      continue;
    }
    plan::Layout next = plan_for(state, job, change.plan);
    ++job.version;
    if (next == job.current) {
      if (!gpus->empty()) note_change(state, job, next, cause);
      continue;
    }
    if (gpus->empty()) wait_after_loss(state, job);
    if (!starting) {
      begin_move(state, job, std::move(next), cause);
    } else if (!job.truth.fits(next)) {
      end_in_first_iteration(state, job);
    } else {
      note_change(state, job, next, cause);
      state.start_anew(job, std::move(next));
    }
  }
}

void apply_migrations(State& state, const Pending& pending) {
  for (const policy::Migration& each : pending.decisions.migrations) {
    if (each.job == 0 || each.job > state.jobs.size()) continue;
    Job& job = state.job(each.job);
    const auto seen = pending.versions.find(each.job);
    const GpuSet target = gpus_of(each.layout);
    const bool current = job.phase == Phase::running && job.change.move == Move::none &&
                         seen != pending.versions.end() && seen->second == job.version &&
                         job.companions.empty() && each.needed_by <= state.jobs.size() &&
                         state.job(each.needed_by).phase == Phase::pending;
    if (!current || count(target) != job.type.gpus || !state.ledger.has_free(target)) {
      ++state.outcome.refused;
      continue;
    }
    check_plan(state, job, each.layout);
    // The old place becomes a companion that leaves, so that it is given back once the state is
    // off.
    for (const NodeGpus& part : job.basic) {
      const policy::JobId companion = state.next_companion++;
      state.ledger.give_back(part, {job.spec.id, 0});
      state.ledger.take(part, {job.spec.id, companion});
      job.companions.push_back({companion, part, true});
    }
    state.ledger.take(target, {job.spec.id, 0});
    job.basic = target;
    job.basic_plan = each.layout;
    ++state.outcome.migrations;
    begin_move(state, job, each.layout, {Cause::Why::pending_job, each.needed_by});
  }
}

void preempt_for(State& state, const std::vector<Start>& waiting) {
  std::map<int, int> needed;  // GPUs needed on each node by all that wait for it
  for (const Start& start : waiting)
    if (state.job(start.id).offered)
      for (int node : start.nodes) needed[node] += start.per_node;
  std::map<policy::JobId, std::set<policy::JobId>> taken;
  for (auto& [node, gpus] : needed) {
    gpus -= std::popcount(state.ledger.free(node));
    std::vector<std::pair<policy::JobId, policy::JobId>> here;  // companion, job
    for (policy::JobId id : state.running)
      for (const LentGpus& companion : state.job(id).companions) {
        if (companion.gpus.node != node) continue;
        if (companion.leaving || state.job(id).change.late.contains(companion.id))
          gpus -= std::popcount(companion.gpus.gpus);
        else here.push_back({companion.id, id});
      }
    std::sort(here.rbegin(), here.rend());
    for (const auto& [companion, id] : here) {
      if (gpus <= 0) break;
      for (const LentGpus& one : state.job(id).companions)
        if (one.id == companion) gpus -= std::popcount(one.gpus.gpus);
      taken[id].insert(companion);
    }
  }
  for (const auto& [id, companions] : taken)
    reclaim(state, state.job(id), companions, nullptr, {Cause::Why::no_room});
}

}  // namespace swell::sim
