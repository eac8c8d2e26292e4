// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/decider.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <utility>

#include "controller/companion_time.h"
#include "controller/explanations.h"
#include "controller/gpu_masks.h"
#include "controller/held_gpus.h"
#include "controller/partition_limits.h"
#include "controller/quotas.h"
#include "core/count_of.h"
#include "core/perf/performance_model.h"
#include "core/policy/registry.h"
#include "core/slurm_text/lists.h"

namespace swell::controller {

namespace {

/// A decision that a plan is made for is waited for so long; then it is taken in a later round, and
/// agents are answered meanwhile.
constexpr auto kPlanPatience = std::chrono::milliseconds(20);

/// Shortest time between two plans for the same GPUs of one job: its program switches, and reports
/// what came of it.
constexpr double kMinReplanInterval_s = 10;

/// Which GPUs of the node a grant counts on, as Slurm writes them: those of the job's plan, or
/// those that Slurm takes first. Empty: nobody knows which are idle.
std::string expected_gpus(const policy::Grant& grant, const plan::Layout* layout,
                          const policy::NodeView& node) {
  plan::GpuMask gpus = 0;
  if (layout != nullptr)
    if (const HeldGpus used = gpus_of(*layout); used.contains(grant.node))
      gpus = used.at(grant.node) & node.free_gpus;
  if (std::popcount(gpus) != grant.lent.gpus) gpus = lowest(node.free_gpus, grant.lent.gpus);
  if (std::popcount(gpus) != grant.lent.gpus) return {};
  std::vector<int> indices;
  for (; gpus != 0; gpus &= gpus - 1) indices.push_back(std::countr_zero(gpus));
  return slurm_text::list_of_indices(indices);
}

/// Label of swell_reclaims (meters.h), and the reason for the job's owner.
std::pair<const char*, std::string> cause_of(const policy::Reclaim& reclaim) {
  using Why = policy::Reclaim::Why;
  if (reclaim.needed_by != 0)
    return {"basic-demand", fmt::format("needed by job {}", reclaim.needed_by)};
  if (reclaim.why == Why::slows) return {"shortfall", "by its profile it is no faster with them"};
  if (reclaim.why == Why::brings_little)
    return {"rebalanced", "they bring it less than the policy asks for"};
  if (reclaim.why == Why::deadline)
    return {"rebalanced", "another elastic job keeps its deadline with them"};
  if (reclaim.why == Why::owed)
    return {"rebalanced", "another elastic job wanted them and started with fewer"};
  return {"rebalanced", "another elastic job gains more by them"};
}

}  // namespace

Decider::Decider(LoopState& loop, Parts parts) : loop_(loop), parts_(std::move(parts)) {
  const Config& config = loop_.config;
  const bool plans = policy::policy_plans(config.policy);
  Result<std::unique_ptr<policy::Policy>> policy =
      policy::make_policy(config.policy, {.aggressiveness = config.aggressiveness,
                                          .fairness = config.fairness,
                                          .executor = plans ? planning_helpers() : nullptr,
                                          .budget = solve_budget,
                                          .arrivals = config.arrivals,
                                          .objective = config.objective});
  if (policy) policy_ = std::move(*policy);
  if (policy_ && plans) planning_ = std::make_unique<Planning>(*policy_, parts_.wake);
}

void Decider::set_draining(bool draining) {
  if (draining == loop_.draining) return;
  loop_.draining = draining;
  loop_.decision.ask();
  loop_.events.event(draining ? "drain" : "drain-ended", {},
                     draining ? "draining: all lent GPUs are reclaimed, and no more are lent"
                              : "GPUs are lent again");
}

void Decider::drain(double now) {
  loop_.book.reclaim_order().set({});
  for (auto& [id, job] : loop_.jobs) {
    loop_.book.withdraw_all(id);
    job.deadline.drains();
    for (Companion& companion : job.companions)
      if (!companion.is_leaving())
        parts_.reclaimer.reclaim(job, companion, now, "drain", "the administrator drains Swell");
  }
}

void Decider::decide(double now) {
  loop_.decision.done();
  if (loop_.draining) {
    if (policy_) explain(loop_, parts_.views, parts_.views.view(now));
    return drain(now);
  }
  if (loop_.jobs.empty() || !policy_) return loop_.book.reclaim_order().set({});
  if (planning_ && planning_->is_busy()) {
    loop_.decision.ask();  // once that is made
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  policy::ClusterView seen = parts_.views.view(now);
  explain(loop_, parts_.views, seen);
  const bool plans = std::any_of(seen.jobs.begin(), seen.jobs.end(),
                                 [](const auto& job) { return job.training != nullptr; });
  if (plans && planning_) {
    planning_->start(std::move(seen));
    take_planned(now, kPlanPatience, true);
  } else {
    const policy::Decisions decisions = policy_->decide(seen);
    loop_.meters.decided(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    watch_deadlines(decisions.deadlines, seen);
    apply(decisions, seen, now);
  }
  decide_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Takes up what the planning thread has decided, if it has; `at_once`: nothing happened since it
/// began.
void Decider::take_planned(double now, std::chrono::milliseconds patience, bool at_once) {
  if (!planning_) return;
  const std::optional<Decided> decided = planning_->take(patience);
  if (!decided) return;
  max_planning_s_ = std::max(max_planning_s_, decided->took_s);
  if (!decided->problem.empty())
    return loop_.events.say_once("planning", "no plan was made: " + decided->problem);
  loop_.events.fixed("planning");
  loop_.meters.decided(decided->took_s);
  parts_.scales.take(decided->scales);
  if (loop_.draining) return;
  watch_deadlines(decided->decisions.deadlines, decided->view);
  if (at_once) return apply(decided->decisions, decided->view, now);
  const policy::ClusterView seen = parts_.views.view(now);
  policy::Decisions good = still_good(*decided, seen);
  // Plans number nodes as the machines do that they were made for.
  if (seen.machines != decided->view.machines) good.plans.clear();
  apply(good, seen, now);
}

/// Takes up what a decision on `view` says of deadlines. It says nothing of jobs that the view
/// lacks, such as those that started while it was made.
void Decider::watch_deadlines(const std::vector<policy::DeadlineState>& states,
                              const policy::ClusterView& view) {
  std::map<JobId, policy::DeadlineState> known;
  for (const policy::DeadlineState& state : states) known[state.job] = state;
  for (const policy::ElasticJobView& seen : view.jobs) {
    const auto found = loop_.jobs.find(seen.id);
    if (found == loop_.jobs.end() || !found->second.spec.deadline) continue;
    ElasticJob& job = found->second;
    const auto state = known.find(seen.id);
    job.deadline.decided(state != known.end() ? std::optional(state->second) : std::nullopt,
                         job.basic_gpus + job.companions.lent_gpus(), job.agent_words.steps());
  }
}

void Decider::apply(const policy::Decisions& decisions, const policy::ClusterView& view,
                    double now) {
  loop_.book.reclaim_order().set(decisions.reclaim_order);
  for (auto& [id, job] : loop_.jobs) job.decision.begin();
  for (const policy::Unlikely& unlikely : decisions.unlikely)
    if (const auto job = loop_.jobs.find(unlikely.job); job != loop_.jobs.end())
      job->second.decision.doubt(unlikely);
  std::map<JobId, Planned> plans;
  for (const policy::NewPlan& plan : decisions.plans)
    if (const auto job = loop_.jobs.find(plan.job); job != loop_.jobs.end())
      plans[plan.job] = plan_for(job->second, plan.layout, view);
  // Each job hears of all that it gives back at once: its plan is for what is left then.
  std::map<JobId, control::Shrink> shrinks;
  for (const policy::Reclaim& reclaim : decisions.reclaims) {
    const auto job = loop_.jobs.find(reclaim.job);
    if (job == loop_.jobs.end()) continue;
    Companion* companion = job->second.companions.find(reclaim.companion);
    if (companion == nullptr || companion->is_leaving()) continue;
    const auto [cause, reason] = cause_of(reclaim);
    parts_.reclaimer.leave(job->second, *companion, now, cause, reason);
    control::Shrink& shrink = shrinks[reclaim.job];
    shrink.companions.push_back(companion->id);
    shrink.deadline_s =
        static_cast<int>(std::ceil(std::max(companion->departure().deadline() - now, 0.0)));
    if (shrink.reason.find(companion->departure().reason()) == std::string::npos)
      shrink.reason += (shrink.reason.empty() ? "" : "; ") + companion->departure().reason();
    shrink.plan = plans[reclaim.job].json;
  }
  for (auto& [id, shrink] : shrinks)
    if (ElasticJob& job = loop_.jobs.at(id); job.agent.is_connected()) {
      loop_.sessions.send(job.agent.connection(), std::move(shrink));
      job.ordered.ordered(now);
    }
  std::map<JobId, std::vector<policy::Grant>> by_job;
  for (const policy::Grant& each : decisions.grants) by_job[each.job].push_back(each);
  // Each job was given the whole room under a limit that it shares with others.
  const std::vector<LiveGrant> outstanding = loop_.book.outstanding();
  Quotas quotas(loop_.config, loop_.snapshot, loop_.jobs, outstanding);
  LimitsByPartition by_partition(loop_.snapshot, loop_.jobs, outstanding);
  for (auto& [id, grants] : by_job) {
    const slurm::JobRecord* record = loop_.record_of(id);
    if (record == nullptr) continue;
    PartitionLimits& limits = by_partition.of(companion_partition(*record, loop_.config));
    if (!fit_to_partition(id, grants, view, limits)) plans.erase(id);
    if (const auto job = loop_.jobs.find(id);
        job != loop_.jobs.end() &&
        grants.size() > static_cast<std::size_t>(job->second.limits.companion_slots())) {
      // The plan was for all of them; the next one follows once the job has reported.
      grants.resize(static_cast<std::size_t>(job->second.limits.companion_slots()));
      plans.erase(id);
    }
    if (grants.empty()) continue;
    int gpus = 0;
    for (const policy::Grant& each : grants) gpus += each.lent.gpus;
    if (!quotas.take(id, gpus)) {
      loop_.decision.ask();
    } else if (const auto job = loop_.jobs.find(id); job != loop_.jobs.end()) {
      grant(job->second, grants, plans[id], view, now);
      for (const policy::Grant& each : grants)
        limits.take(view.nodes[static_cast<std::size_t>(each.node)].name, each.lent.cpus);
    }
  }
  for (const policy::ElasticJobView& seen : view.jobs)
    if (seen.may_replan && !shrinks.contains(seen.id) && !by_job.contains(seen.id))
      if (const auto plan = plans.find(seen.id); plan != plans.end())
        run_instead(loop_.jobs.at(seen.id), plan->second, now);
}

/// Cuts the grants of one job to what its partition's limits let companions have. Returns whether a
/// plan for them still holds: not for fewer GPUs, nor for companions that cannot open each other's.
bool Decider::fit_to_partition(JobId id, std::vector<policy::Grant>& grants,
                               const policy::ClusterView& view,
                               const PartitionLimits& limits) const {
  const auto seen = std::find_if(view.jobs.begin(), view.jobs.end(),
                                 [&](const auto& each) { return each.id == id; });
  if (seen == view.jobs.end() || seen->per_worker.gpus < 1 || !limits.any()) return true;
  std::vector<policy::Grant> fit = limits.cut(grants, seen->per_worker, view);
  if (fit == grants) return true;
  const auto gpus_in = [](const std::vector<policy::Grant>& all) {
    return std::accumulate(all.begin(), all.end(), 0,
                           [](int sum, const policy::Grant& each) { return sum + each.lent.gpus; });
  };
  const bool has_all = gpus_in(fit) == gpus_in(grants);
  grants = std::move(fit);
  return has_all && (view.machines == nullptr || !view.machines->interconnect().devices_apart);
}

Decider::Planned Decider::plan_for(ElasticJob& job, const plan::Layout& layout,
                                   const policy::ClusterView& view) {
  Planned planned;
  const auto seen = std::find_if(view.jobs.begin(), view.jobs.end(),
                                 [&](const auto& each) { return each.id == job.id; });
  if (seen == view.jobs.end() || !seen->training || !view.machines || layout.stages.empty())
    return planned;
  const perf::PerformanceModel model(*seen->training->model, *view.machines,
                                     *seen->training->coefficients, perf::Sends::counted);
  const double now = model.throughput(seen->training->current), then = model.throughput(layout);
  plan::Plan plan = plan::name_all(layout, *view.machines);
  planned.times = then / now;
  planned.reason =
      fmt::format("{:.2f} times as fast is predicted{}, by {}", planned.times,
                  seen->training->is_measured() ? "" : " by data sheets", plan.summary());
  if (job.training.told().makes_own_plans()) return planned;
  Json json = plan.to_json();
  if (const std::size_t bytes = json.dump().size(); bytes > control::kMaxDocument) {
    loop_.events.event(
        "plan-unsent", {{"job", job.id}, {"bytes", static_cast<std::int64_t>(bytes)}},
        fmt::format("job {}: its plan has {} bytes as JSON, and at most {} can be sent: "
                    "the program makes its own",
                    job.id, bytes, control::kMaxDocument));
    return planned;
  }
  planned.layout = &layout;
  job.training.told().decide(std::move(plan), job.agent_words.last().generation);
  loop_.remember_at_once(job);
  planned.json = std::move(json);
  return planned;
}

void Decider::run_instead(ElasticJob& job, const Planned& plan, double now) {
  if (!job.agent.is_connected() || !is_object(plan.json)) return;
  const double wait_s = std::max(loop_.config.growth_interval_s, kMinReplanInterval_s);
  job.replans.decided(job.companions, now, wait_s);
  job.offers.replan(now, wait_s);
  loop_.events.event("plan", {{"job", job.id}, {"plan", plan.json}, {"reason", plan.reason}},
                     fmt::format("job {} is to run another plan on the GPUs that it has: {}",
                                 job.id, plan.reason));
  parts_.state.save();
  loop_.sessions.send(job.agent.connection(), control::Replan{plan.json, plan.reason});
  job.ordered.ordered(now);
}

void Decider::grant(ElasticJob& job, const std::vector<policy::Grant>& grants, const Planned& plan,
                    const policy::ClusterView& view, double now) {
  const slurm::JobRecord* record = loop_.record_of(job.id);
  if (!job.agent.is_connected() || record == nullptr) return;
  control::Grow grow;
  grow.expires_s = static_cast<int>(std::ceil(loop_.config.grant_expiry_s));
  grow.plan = plan.json;
  grow.reason = plan.reason;
  grow.devices_apart = view.machines != nullptr && view.machines->interconnect().devices_apart;
  for (const policy::Grant& each : grants) {
    const policy::NodeView& node = view.nodes[static_cast<std::size_t>(each.node)];
    LiveGrant live;
    live.parent = job.id;
    live.uid = job.uid;
    live.expires = now + loop_.config.grant_expiry_s;
    control::Offer& offer = live.offer;
    offer.nonce = parts_.nonce();
    // Users do not name their own jobs so: with --dependency=singleton these would wait for it.
    offer.name = fmt::format("swell-{}-lent", job.id);
    offer.node = node.name;
    offer.partition = companion_partition(*record, loop_.config);
    offer.account = record->account;
    offer.qos = loop_.config.expansion_qos;
    offer.gpu_type = node.gpu_type;
    offer.gpus = each.lent.gpus;
    offer.workers = each.lent.gpus / std::max(job.agent_words.gpus_per_worker(), 1);
    offer.cpus = each.lent.cpus;
    offer.memory_mib = each.lent.memory_mib;
    const CompanionEnd end =
        end_of_companion(loop_.snapshot, *record, loop_.config, node.name, loop_.snapshot.taken);
    if (end.at != 0) {
      // The offer may be taken up a while later; what Slurm would refuse then must end before.
      const std::time_t taken_up = end.why.empty() ? 0 : static_cast<std::time_t>(grow.expires_s);
      offer.time_limit_min = static_cast<int>(
          std::max<std::time_t>((end.at - loop_.snapshot.taken - taken_up) / 60, 1));
    }
    offer.warn_s = std::min(grace_of(job, loop_.config), 65535);
    loop_.saved.issued[offer.nonce] = {
        job.id,     offer.node,    offer.gpu_type, offer.partition, loop_.config.expansion_qos,
        offer.gpus, offer.workers, offer.cpus,     offer.memory_mib};
    loop_.events.event(
        "grant",
        {{"job", job.id},
         {"node", offer.node},
         {"gpus", offer.gpus},
         {"gpu_indices", expected_gpus(each, plan.layout, node)},
         {"predicted", plan.times > 0 ? Json(plan.times) : Json()},
         {"reason", plan.reason}},
        fmt::format("granting job {} {} on {}{}{}", job.id, count_of(offer.gpus, "GPU"), offer.node,
                    plan.reason.empty() ? "" : ": ", plan.reason));
    grow.offers.push_back(offer);
    loop_.book.add(std::move(live));
  }
  if (is_object(plan.json)) loop_.events.event("plan", {{"job", job.id}, {"plan", plan.json}});
  parts_.state.save();  // before anybody can act on the grants
  // A job that gets no more than it wanted waits for the offer alone: it may grow beyond that as
  // soon as one that was submitted for all of it.
  int granted = 0;
  for (const policy::Grant& each : grants) granted += each.lent.gpus;
  const double expiry_s = loop_.config.grant_expiry_s;
  const double wait_s = job.kept_gpus() + granted <= job.wanted_gpus
                            ? expiry_s
                            : std::max(loop_.config.growth_interval_s, expiry_s);
  job.offers.made(now, wait_s);
  loop_.sessions.send(job.agent.connection(), std::move(grow));
  job.ordered.ordered(now);
}

}  // namespace swell::controller
