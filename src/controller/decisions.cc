// SPDX-License-Identifier: GPL-2.0-or-later
// Part of Controller: how the policy's decisions are made and carried out.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <set>

#include "controller/companion_time.h"
#include "controller/controller.h"
#include "controller/gpu_masks.h"
#include "controller/held_gpus.h"
#include "controller/quotas.h"
#include "controller/view_builder.h"
#include "core/count_of.h"
#include "core/perf/performance_model.h"
#include "core/slurm_text/lists.h"

namespace swell::controller {

namespace {

/// A decision that a plan is made for is waited for so long; then it is taken in a later round, and
/// agents are answered meanwhile.
constexpr auto kPlanPatience = std::chrono::milliseconds(20);

/// Shortest time between two plans for the same GPUs of one job: its program switches, and reports
/// what came of it.
constexpr double kMinReplanInterval_s = 10;

Json companion_json(const Companion& companion) {
  return Json::object({{"id", companion.id},
                       {"node", companion.node},
                       {"gpus", companion.gpus.count},
                       {"gpu_indices", companion.gpus.indices}});
}

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

std::shared_ptr<const cluster::Fabric> Controller::fabric() {
  auto known = fabric_.update(snapshot_.nodes, snapshot_.taken);
  if (known != known_fabric_)
    for (const std::string& note : known->notes) {
      const auto& before = known_fabric_ ? known_fabric_->notes : std::vector<std::string>{};
      if (std::find(before.begin(), before.end(), note) == before.end()) events_.say(note);
    }
  known_fabric_ = std::move(known);
  return {known_fabric_, &known_fabric_->fabric};
}

void Controller::set_draining(bool draining) {
  if (draining == draining_) return;
  draining_ = draining;
  decide_due_ = true;
  events_.event(draining ? "drain" : "drain-ended", {},
                draining ? "draining: all lent GPUs are reclaimed, and no more are lent"
                         : "GPUs are lent again");
}

void Controller::drain(double now) {
  parts_.book->set_reclaim_order({});
  for (auto& [id, job] : jobs_) {
    parts_.book->withdraw_all(id);
    job.deadline.drains();
    for (Companion& companion : job.companions)
      if (!companion.leaving)
        reclaim(job, companion, now, "drain", "the administrator drains Swell");
  }
}

void Controller::leave(ElasticJob& job, Companion& companion, double now, const char* cause,
                       const std::string& reason, std::optional<double> by) {
  companion.leave(by.value_or(now + grace_of(job, parts_.config)), reason);
  job.taken_back = reason;
  job.stay(now, parts_.config.growth_interval_s);
  events_.event("reclaim",
                {{"job", job.id},
                 {"companion", companion_json(companion)},
                 {"cause", cause},
                 {"reason", reason}},
                fmt::format("reclaiming {} on {} from job {}: {}",
                            count_of(companion.gpus.count, "GPU"), companion.node, job.id, reason));
}

void Controller::reclaim(ElasticJob& job, Companion& companion, double now, const char* cause,
                         const std::string& reason) {
  leave(job, companion, now, cause, reason);
  tell_shrink(job, companion, now);
  if (job.agent) job.ordered.ordered(now);
}

policy::ClusterView Controller::view(double now) {
  policy::ClusterView seen = build_view(snapshot_, jobs_, parts_.book->outstanding(), parts_.config,
                                        now, fabric(), machines());
  seen.preemption = parts_.preemption;
  saved_.health.apply(seen, snapshot_.taken);
  seen.submissions = std::make_shared<const std::vector<policy::Submission>>(
      saved_.submissions.on_clock(now, snapshot_.taken));
  for (policy::ElasticJobView& job : seen.jobs) {
    const ElasticJob& its = jobs_.at(job.id);
    job.measured_cost = redeploy::expected_cost(its.pauses, saved_.pauses, its.way(), job.owner,
                                                static_cast<double>(snapshot_.taken));
  }
  return seen;
}

void Controller::decide(double now) {
  decide_due_ = false;
  if (draining_) {
    if (policy_) explain(view(now));
    return drain(now);
  }
  if (jobs_.empty() || !policy_) return parts_.book->set_reclaim_order({});
  if (planning_ && planning_->is_busy()) {
    decide_due_ = true;  // once that is made
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  policy::ClusterView seen = view(now);
  explain(seen);
  const bool plans = std::any_of(seen.jobs.begin(), seen.jobs.end(),
                                 [](const auto& job) { return job.training != nullptr; });
  if (plans && planning_) {
    planning_->start(std::move(seen));
    take_planned(now, kPlanPatience, true);
  } else {
    const policy::Decisions decisions = policy_->decide(seen);
    meters_.decided(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    watch_deadlines(decisions.deadlines, seen);
    apply(decisions, seen, now);
  }
  last_decide_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Takes up what the planning thread has decided, if it has; `at_once`: nothing happened since it
/// began.
void Controller::take_planned(double now, std::chrono::milliseconds patience, bool at_once) {
  if (!planning_) return;
  const std::optional<Decided> decided = planning_->take(patience);
  if (!decided) return;
  round_times_.planning_max_s = std::max(round_times_.planning_max_s, decided->took_s);
  if (!decided->problem.empty())
    return events_.say_once("planning", "no plan was made: " + decided->problem);
  events_.mended("planning");
  meters_.decided(decided->took_s);
  take_scales(decided->scales);
  if (draining_) return;
  watch_deadlines(decided->decisions.deadlines, decided->view);
  if (at_once) return apply(decided->decisions, decided->view, now);
  const policy::ClusterView seen = view(now);
  policy::Decisions good = still_good(*decided, seen);
  // Plans number nodes as the machines do that they were made for.
  if (seen.machines != decided->view.machines) good.plans.clear();
  apply(good, seen, now);
}

/// Takes up what a decision on `view` says of deadlines. It says nothing of jobs that the view
/// lacks, such as those that started while it was made.
void Controller::watch_deadlines(const std::vector<policy::DeadlineState>& states,
                                 const policy::ClusterView& view) {
  std::map<JobId, policy::DeadlineState> known;
  for (const policy::DeadlineState& state : states) known[state.job] = state;
  for (const policy::ElasticJobView& seen : view.jobs) {
    const auto found = jobs_.find(seen.id);
    if (found == jobs_.end() || !found->second.spec.deadline) continue;
    ElasticJob& job = found->second;
    const auto state = known.find(seen.id);
    job.deadline.decided(state != known.end() ? std::optional(state->second) : std::nullopt,
                         job.basic_gpus + job.companions.lent_gpus(), job.steps);
  }
}

void Controller::apply(const policy::Decisions& decisions, const policy::ClusterView& view,
                       double now) {
  parts_.book->set_reclaim_order(decisions.reclaim_order);
  for (auto& [id, job] : jobs_) {
    job.lowered_by_others = 1;
    job.unlikely.reset();
  }
  for (const policy::Unlikely& unlikely : decisions.unlikely)
    if (const auto job = jobs_.find(unlikely.job); job != jobs_.end())
      job->second.unlikely = unlikely;
  for (const policy::Lowered& lowered : decisions.lowered)
    if (const auto job = jobs_.find(lowered.job); job != jobs_.end())
      job->second.lowered_by_others = lowered.factor;
  std::map<JobId, Planned> plans;
  for (const policy::NewPlan& plan : decisions.plans)
    if (const auto job = jobs_.find(plan.job); job != jobs_.end())
      plans[plan.job] = plan_for(job->second, plan.layout, view);
  // Each job hears of all that it gives back at once: its plan is for what is left then.
  std::map<JobId, control::Shrink> shrinks;
  for (const policy::Reclaim& reclaim : decisions.reclaims) {
    const auto job = jobs_.find(reclaim.job);
    if (job == jobs_.end()) continue;
    Companion* companion = job->second.companions.find(reclaim.companion);
    if (companion == nullptr || companion->leaving) continue;
    const auto [cause, reason] = cause_of(reclaim);
    leave(job->second, *companion, now, cause, reason);
    control::Shrink& shrink = shrinks[reclaim.job];
    shrink.companions.push_back(companion->id);
    shrink.deadline_s = static_cast<int>(std::ceil(std::max(companion->deadline - now, 0.0)));
    if (shrink.reason.find(companion->reason) == std::string::npos)
      shrink.reason += (shrink.reason.empty() ? "" : "; ") + companion->reason;
    shrink.plan = plans[reclaim.job].json;
  }
  for (auto& [id, shrink] : shrinks)
    if (ElasticJob& job = jobs_.at(id); job.agent) {
      sessions_.send(*job.agent, std::move(shrink));
      job.ordered.ordered(now);
    }
  std::map<JobId, std::vector<policy::Grant>> by_job;
  for (const policy::Grant& each : decisions.grants) by_job[each.job].push_back(each);
  // Each job was given the whole room under a limit that it shares with others.
  Quotas quotas(parts_.config, snapshot_, jobs_, parts_.book->outstanding());
  for (auto& [id, grants] : by_job) {
    if (const auto job = jobs_.find(id);
        job != jobs_.end() &&
        grants.size() > static_cast<std::size_t>(job->second.companion_slots)) {
      // The plan was for all of them; the next one follows once the job has reported.
      grants.resize(static_cast<std::size_t>(job->second.companion_slots));
      plans.erase(id);
      if (grants.empty()) continue;
    }
    int gpus = 0;
    for (const policy::Grant& each : grants) gpus += each.lent.gpus;
    if (!quotas.take(id, gpus)) decide_due_ = true;
    else if (const auto job = jobs_.find(id); job != jobs_.end())
      grant(job->second, grants, plans[id], view, now);
  }
  for (const policy::ElasticJobView& seen : view.jobs)
    if (seen.may_replan && !shrinks.contains(seen.id) && !by_job.contains(seen.id))
      if (const auto plan = plans.find(seen.id); plan != plans.end())
        run_instead(jobs_.at(seen.id), plan->second, now);
}

Controller::Planned Controller::plan_for(ElasticJob& job, const plan::Layout& layout,
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
  if (job.training.makes_own_plans()) return planned;
  Json json = plan.to_json();
  if (const std::size_t bytes = json.dump().size(); bytes > control::kMaxDocument) {
    events_.event("plan-unsent", {{"job", job.id}, {"bytes", static_cast<std::int64_t>(bytes)}},
                  fmt::format("job {}: its plan has {} bytes as JSON, and at most {} can be sent: "
                              "the program makes its own",
                              job.id, bytes, control::kMaxDocument));
    return planned;
  }
  planned.layout = &layout;
  job.training.decided(std::move(plan), job.epoch);
  remember(job);
  save_due_ = true;
  planned.json = std::move(json);
  return planned;
}

void Controller::run_instead(ElasticJob& job, const Planned& plan, double now) {
  if (!job.agent || !plan.json.is_object()) return;
  const double wait_s = std::max(parts_.config.growth_interval_s, kMinReplanInterval_s);
  job.replans.decided(job.companions, now, wait_s);
  job.grow_after = std::max(job.grow_after, now + wait_s);
  job.changes(now, wait_s);
  events_.event("plan", {{"job", job.id}, {"plan", plan.json}, {"reason", plan.reason}},
                fmt::format("job {} is to run another plan on the GPUs that it has: {}", job.id,
                            plan.reason));
  save();
  sessions_.send(*job.agent, control::Replan{plan.json, plan.reason});
  job.ordered.ordered(now);
}

void Controller::grant(ElasticJob& job, const std::vector<policy::Grant>& grants,
                       const Planned& plan, const policy::ClusterView& view, double now) {
  const slurm::JobRecord* record = record_of(job.id);
  if (!job.agent || record == nullptr) return;
  control::Grow grow;
  grow.expires_s = static_cast<int>(std::ceil(parts_.config.grant_expiry_s));
  grow.plan = plan.json;
  grow.reason = plan.reason;
  grow.devices_apart = view.machines != nullptr && view.machines->devices_apart();
  for (const policy::Grant& each : grants) {
    const policy::NodeView& node = view.nodes[static_cast<std::size_t>(each.node)];
    LiveGrant live;
    live.parent = job.id;
    live.uid = job.uid;
    live.expires = now + parts_.config.grant_expiry_s;
    control::Offer& offer = live.offer;
    offer.nonce = parts_.nonce();
    // Users do not name their own jobs so: with --dependency=singleton these would wait for it.
    offer.name = fmt::format("swell-{}-lent", job.id);
    offer.node = node.name;
    offer.partition = companion_partition(*record, parts_.config);
    offer.account = record->account;
    offer.qos = parts_.config.expansion_qos;
    offer.gpu_type = node.gpu_type;
    offer.gpus = each.lent.gpus;
    offer.workers = each.lent.gpus / std::max(job.gpus_per_worker, 1);
    offer.cpus = each.lent.cpus;
    offer.memory_mib = each.lent.memory_mib;
    const CompanionEnd end =
        end_of_companion(snapshot_, *record, parts_.config, node.name, snapshot_.taken);
    if (end.at != 0) {
      // The offer may be taken up a while later; what Slurm would refuse then must end before.
      const std::time_t taken_up = end.why.empty() ? 0 : static_cast<std::time_t>(grow.expires_s);
      offer.time_limit_min =
          static_cast<int>(std::max<std::time_t>((end.at - snapshot_.taken - taken_up) / 60, 1));
    }
    offer.warn_s = std::min(grace_of(job, parts_.config), 65535);
    saved_.issued[offer.nonce] = {
        job.id,     offer.node,    offer.gpu_type, offer.partition, parts_.config.expansion_qos,
        offer.gpus, offer.workers, offer.cpus,     offer.memory_mib};
    events_.event("grant",
                  {{"job", job.id},
                   {"node", offer.node},
                   {"gpus", offer.gpus},
                   {"gpu_indices", expected_gpus(each, plan.layout, node)},
                   {"predicted", plan.times > 0 ? Json(plan.times) : Json()},
                   {"reason", plan.reason}},
                  fmt::format("granting job {} {} on {}{}{}", job.id, count_of(offer.gpus, "GPU"),
                              offer.node, plan.reason.empty() ? "" : ": ", plan.reason));
    grow.offers.push_back(offer);
    parts_.book->add(std::move(live));
  }
  if (plan.json.is_object()) events_.event("plan", {{"job", job.id}, {"plan", plan.json}});
  save();  // before anybody can act on the grants
  job.offered = true;
  // A job that gets no more than it wanted waits for the offer alone: it may grow beyond that as
  // soon as one that was submitted for all of it.
  int granted = 0;
  for (const policy::Grant& each : grants) granted += each.lent.gpus;
  const double expiry_s = parts_.config.grant_expiry_s;
  const double wait_s = job.kept_gpus() + granted <= job.wanted_gpus
                            ? expiry_s
                            : std::max(parts_.config.growth_interval_s, expiry_s);
  job.grow_after = now + wait_s;
  job.changes(now, wait_s);
  sessions_.send(*job.agent, std::move(grow));
  job.ordered.ordered(now);
}

}  // namespace swell::controller
