// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>

#include "sim/decisions.h"
#include "sim/moves.h"

namespace swell::sim {

namespace {

/// All decisions for one job.
struct Change {
  std::vector<const policy::Grant*> grants;
  std::set<policy::JobId> reclaims;
  const plan::Layout* plan = nullptr;
};

std::map<policy::JobId, Change> by_job(const State& state, const policy::Decisions& decisions) {
  std::map<policy::JobId, Change> changes;
  for (const policy::Reclaim& reclaim : decisions.reclaims) {
    const bool known = reclaim.needed_by > 0 && reclaim.needed_by <= state.jobs.size();
    if (known && state.jobs[reclaim.needed_by - 1].phase != Phase::pending)
      continue;  // it has started elsewhere
    changes[reclaim.job].reclaims.insert(reclaim.companion);
  }
  for (const policy::Grant& grant : decisions.grants) changes[grant.job].grants.push_back(&grant);
  for (const policy::NewPlan& plan : decisions.plans) changes[plan.job].plan = &plan.layout;
  return changes;
}

/// Chooses the GPUs of each grant: those that the plan names, then the lowest idle ones. Nothing
/// where one of them is not available.
std::optional<std::vector<NodeGpus>> gpus_for(const State& state, const Job& job,
                                              const Change& change) {
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

}  // namespace

void apply_lending(State& state, const Pending& pending, const std::vector<Start>& waiting) {
  state.kept.assign(state.kept.size(), 0);
  for (const Start& start : waiting)
    for (int node : start.nodes) state.kept[static_cast<std::size_t>(node)] += start.per_node;

  for (const auto& [id, change] : by_job(state, pending.decisions)) {
    if (id == 0 || id > state.jobs.size()) continue;
    Job& job = state.job(id);
    const auto seen = pending.versions.find(id);
    const bool current = job.phase == Phase::running && job.move == Move::none &&
                         seen != pending.versions.end() && seen->second == job.version;
    if (!current) {
      ++state.outcome.refused;
      // A reclaim is never out of date.
      if (job.phase == Phase::running && !change.reclaims.empty())
        reclaim(state, job, change.reclaims, nullptr);
      continue;
    }
    if (change.plan) check_plan(state, job, *change.plan);
    const auto gpus = gpus_for(state, job, change);
    if (!gpus) {
      ++state.outcome.refused;
      if (!change.reclaims.empty()) reclaim(state, job, change.reclaims, nullptr);
      continue;
    }
    const bool starting = job.starting(state.now_s);
    for (const NodeGpus& part : *gpus) {
      const policy::JobId companion = state.next_companion++;
      state.ledger.take(part, {id, companion});
      job.companions.push_back({companion, part, false});
    }
    if (!change.reclaims.empty()) {
      reclaim(state, job, change.reclaims, change.plan);
      continue;
    }
    plan::Layout next = plan_for(state, job, change.plan);
    ++job.version;
    if (next == job.current) continue;
    if (starting) state.start_anew(job, std::move(next));
    else begin_move(state, job, std::move(next));
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
        if (companion.leaving || state.job(id).late.contains(companion.id))
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
  for (const auto& [id, companions] : taken) reclaim(state, state.job(id), companions, nullptr);
}

}  // namespace swell::sim
