// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/explain.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <set>

#include "core/count_of.h"
#include "sim/moves.h"

namespace swell::sim {

namespace {

using Kind = Change::Kind;
using Why = Cause::Why;

/// The plan in short: its degrees, of its first stage where stages differ, and its nodes.
std::string in_short(const plan::Layout& layout) {
  std::set<int> nodes;
  for (const plan::StageLayout& stage : layout.stages)
    for (const plan::GroupLayout& group : stage.groups) nodes.insert(group.node);
  if (layout.stages.empty()) return "none";
  const plan::StageLayout& first = layout.stages.front();
  return fmt::format("PP{} DP{} TP{} on {}", layout.pp(), first.dp(), first.tp,
                     count_of(nodes.size(), "node"));
}

Kind kind_of(const Change& change, bool same_plan) {
  if (change.gpus_after != change.gpus_before)
    return change.gpus_after > change.gpus_before ? Kind::lent : Kind::reclaimed;
  if (!same_plan) return Kind::replanned;
  const Why why = change.cause.why;
  return why == Why::gain || why == Why::unprofiled || why == Why::wanted ? Kind::lent
                                                                          : Kind::reclaimed;
}

/// Job::left as of now.
double left_of(const State& state, const Job& job) { return job.progress.left(state.now_s); }

}  // namespace

void note_change(State& state, Job& job, const plan::Layout& next, Cause cause) {
  if (!state.setup.explain) return;
  end_change(state, job);
  Change change;
  change.job = job.spec.id;
  change.cause = cause;
  change.at_s = state.now_s;
  change.gpus_before = job.current.gpu_count();
  change.gpus_after = next.gpu_count();
  change.kind = kind_of(change, next == job.current);
  change.plan_before = in_short(job.current);
  change.plan_after = in_short(next);
  const double before_s = job.truth.iteration_s(job.current);
  change.real = before_s / job.truth.iteration_s(next);
  if (job.measured.coefficients)
    change.promised = predicted_s(state, job, job.current) / predicted_s(state, job, next);
  const bool has_claim = change.kind != Kind::reclaimed;
  const double compared_s =
      has_claim ? before_s : std::max(before_s, job.truth.iteration_s(job.basic_plan));
  const std::size_t index = state.outcome.changes.size();
  job.change.recorded = {index, left_of(state, job), compared_s};
  for (LentGpus& companion : job.companions)
    if (companion.change < 0) companion.change = static_cast<int>(index);
  state.outcome.changes.push_back(std::move(change));
}

void end_change(State& state, Job& job) {
  if (!job.change.recorded) return;
  Change& change = state.outcome.changes[job.change.recorded->change];
  change.until_s = state.now_s;
  const double iterations = job.change.recorded->left - left_of(state, job);
  change.own_delay_s = state.now_s - change.at_s - iterations * job.change.recorded->iteration_s;
  job.change.recorded.reset();
}

void note_idle(State& state, Job& job, double still_s, double idle_gpu_s) {
  state.outcome.lost_gpu_s += idle_gpu_s;
  job.outcome.still_s += still_s;
  if (!job.change.recorded) return;
  Change& change = state.outcome.changes[job.change.recorded->change];
  change.still_s += still_s;
  change.idle_gpu_s += idle_gpu_s;
}

void note_waiting(State& state, const std::vector<Start>& waiting, double passed_s) {
  if (!state.setup.explain || passed_s <= 0) return;
  for (const Start& start : waiting) {
    if (state.job(start.id).phase != Phase::pending) continue;
    std::set<int> lenders;
    for (const policy::JobId id : state.running)
      for (const LentGpus& companion : state.job(id).companions)
        if (companion.change >= 0 && std::find(start.nodes.begin(), start.nodes.end(),
                                               companion.gpus.node) != start.nodes.end())
          lenders.insert(companion.change);
    for (const int change : lenders)
      state.outcome.changes[static_cast<std::size_t>(change)].others_delay_s +=
          passed_s / static_cast<double>(lenders.size());
  }
}

Explanation explain(const std::vector<Outcome>& outcomes) {
  Explanation made;
  std::map<std::pair<Kind, Why>, ChangeSum> sums;
  double jobs = 0;
  for (std::size_t seed = 0; seed < outcomes.size(); ++seed) {
    for (const JobOutcome& job : outcomes[seed].jobs) {
      ++jobs;
      made.waited_s += job.waited_s;
      made.still_s += job.still_s;
      made.trained_s += job.jct_s() - job.waited_s - job.still_s;
    }
    for (const Change& change : outcomes[seed].changes) {
      ChangeSum& sum = sums[{change.kind, change.cause.why}];
      sum.kind = change.kind;
      sum.why = change.cause.why;
      ++sum.changes;
      (change.own_delay_s > 0 ? sum.lost_s : sum.gained_s) += std::abs(change.own_delay_s);
      sum.others_s += change.others_delay_s;
      sum.still_s += change.still_s;
      sum.idle_gpu_s += change.idle_gpu_s;
      if (change.cost_s() > 0) made.costliest.push_back({seed, change});
    }
  }
  for (double* mean : {&made.waited_s, &made.still_s, &made.trained_s})
    if (jobs > 0) *mean /= jobs;
  std::stable_sort(made.costliest.begin(), made.costliest.end(),
                   [](const SeedChange& a, const SeedChange& b) {
                     return a.change.cost_s() > b.change.cost_s();
                   });
  if (made.costliest.size() > kCostliest) made.costliest.resize(kCostliest);
  for (const auto& [key, sum] : sums) made.sums.push_back(sum);
  std::stable_sort(made.sums.begin(), made.sums.end(), [](const ChangeSum& a, const ChangeSum& b) {
    return a.lost_s + a.others_s > b.lost_s + b.others_s;
  });
  return made;
}

const char* text_of(Change::Kind kind) noexcept {
  switch (kind) {
    case Kind::lent: return "lent";
    case Kind::reclaimed: return "reclaimed";
    case Kind::replanned: break;
  }
  return "replanned";
}

std::string text_of(const Cause& cause) {
  switch (cause.why) {
    case Why::gain: return "idle GPUs, by its profile";
    case Why::unprofiled: return "idle GPUs, before its profile was there";
    case Why::wanted: return "GPUs that it consented to wait for";
    case Why::better_plan: return "a better plan for its GPUs";
    case Why::pending_job:
      return cause.job > 0 ? fmt::format("pending job {} needs them", cause.job)
                           : "a pending job needs them";
    case Why::no_room: return "a pending job needs them, unasked by the policy";
    case Why::another_job: return "another job gains more by them";
    case Why::owed: return "another job consented to wait for them";
    case Why::deadline: return "another job keeps its deadline by them";
    case Why::brings_little: return "they bring too little, by the policy";
    case Why::slows: return "by its profile it is no faster with them";
    case Why::fell_short: return "they brought too little, as measured";
    case Why::no_memory: return "the plan did not fit memory";
    case Why::node_failed: return "a node failed";
    case Why::placed: break;
  }
  return "as the policy placed it";
}

Json to_json(const Explanation& explanation) {
  Json costliest = Json::array(), sums = Json::array();
  for (const auto& [seed, change] : explanation.costliest)
    costliest.append(Json::object({{"seed", seed},
                                   {"job", change.job},
                                   {"decision", text_of(change.kind)},
                                   {"why", text_of(change.cause)},
                                   {"at_s", change.at_s},
                                   {"until_s", change.until_s},
                                   {"gpus_before", change.gpus_before},
                                   {"gpus_after", change.gpus_after},
                                   {"plan_before", change.plan_before},
                                   {"plan_after", change.plan_after},
                                   {"promised_speedup", change.promised},
                                   {"speedup", change.real},
                                   {"own_delay_s", change.own_delay_s},
                                   {"others_delay_s", change.others_delay_s},
                                   {"still_s", change.still_s},
                                   {"idle_gpu_s", change.idle_gpu_s}}));
  for (const ChangeSum& sum : explanation.sums)
    sums.append(Json::object({{"decision", text_of(sum.kind)},
                              {"why", text_of(Cause{sum.why})},
                              {"decisions", sum.changes},
                              {"lost_s", sum.lost_s},
                              {"gained_s", sum.gained_s},
                              {"others_delay_s", sum.others_s},
                              {"still_s", sum.still_s},
                              {"idle_gpu_s", sum.idle_gpu_s}}));
  return Json::object({{"costliest", costliest},
                       {"by_reason", sums},
                       {"mean_job", Json::object({{"waited_s", explanation.waited_s},
                                                  {"still_s", explanation.still_s},
                                                  {"trained_s", explanation.trained_s}})}});
}

}  // namespace swell::sim
