// SPDX-License-Identifier: GPL-2.0-or-later
// Part of Controller: measurements of jobs, and how far they are believed.
#include <algorithm>
#include <fmt/format.h>
#include <ranges>
#include <utility>

#include "control/speed_table.h"
#include "controller/controller.h"
#include "controller/growth_facts.h"
#include "controller/quotas.h"
#include "controller/view_builder.h"
#include "core/count_of.h"
#include "core/policy/lending/expansions.h"
#include "core/policy/registry.h"

namespace swell::controller {

namespace {

/// Tells the owner of a job that is_distrusted() what it is lent and how to change that.
std::string distrust(const ElasticJob& job) {
  const std::string most =
      job.wanted_gpus > job.basic_gpus
          ? fmt::format("no more than the {} that it asked for", count_of(job.wanted_gpus, "GPU"))
          : "nothing";
  return fmt::format("lent {} until it reports a usable profile: {}", most, job.refused_report);
}

/// A report may come before Slurm's records show the companions that it speaks of: it is tried
/// again for so long.
constexpr double kReportKept_s = 5;

/// Whether the job has all these companions, and keeps them. A report that names others is of what
/// it was until a moment ago: it is neither used nor held against the job, which could as well have
/// reported nothing.
bool holds_all(const ElasticJob& job, const std::vector<JobId>& companions) {
  return std::all_of(companions.begin(), companions.end(), [&](JobId id) {
    return std::any_of(job.companions.begin(), job.companions.end(),
                       [&](const Companion& each) { return each.id == id && !each.leaving; });
  });
}

}  // namespace

std::shared_ptr<const cluster::Cluster> Controller::machines() {
  return machines_.update(snapshot_.nodes, fabric());
}

const slurm::JobRecord* Controller::record_of(JobId job) const {
  const auto found = std::find_if(snapshot_.jobs.begin(), snapshot_.jobs.end(),
                                  [&](const slurm::JobRecord& each) { return each.id == job; });
  return found != snapshot_.jobs.end() ? &*found : nullptr;
}

void Controller::handle(ElasticJob& job, const control::Profile& profile, double now) {
  job.report = profile;
  job.reported = now;
}

Result<Controller::JobGpus> Controller::gpus_of(const ElasticJob& job) {
  const auto nodes = machines();
  const slurm::JobRecord* record = record_of(job.id);
  if (nodes == nullptr || record == nullptr) return Error("the planner knows no nodes");
  auto basic = held_gpus(job, *record, *nodes, false), held = held_gpus(job, *record, *nodes, true);
  if (!basic) return basic.error();
  if (!held) return held.error();
  return JobGpus{nodes, std::move(*basic), std::move(*held), allocations_of(job, *record, *nodes)};
}

/// Whether the job's report is taken. A report that is neither taken nor refused yet stays.
bool Controller::take_report(ElasticJob& job, double now) {
  const Result<JobGpus> gpus = gpus_of(job);
  const Result<void> taken = gpus ? job.training.take(*job.report, gpus->basic, gpus->held,
                                                      *gpus->machines, gpus->allocations)
                                  : Result<void>(gpus.error());
  if (!taken && now - job.reported < kReportKept_s) return false;
  if (!taken && !holds_all(job, job.report->companions)) {
    job.report.reset();
    return false;
  }
  decide_due_ = true;
  job.trust.heard(job.training.speedup(), now, parts_.config.max_shortfall);
  if (taken) {
    job.refused_report.clear();
    job.refused_since.reset();
    return true;
  }
  // A report that nobody could judge, or that is incomplete, is not held against the job.
  if (gpus.ok() && !job.training.is_incomplete() && !job.refused_since) job.refused_since = now;
  refuse_report(job, taken.error().message());
  return false;
}

void Controller::refuse_report(ElasticJob& job, const std::string& why) {
  job.report.reset();
  job.refused_report = why;
  events_.event("profile-refused", {{"job", job.id}, {"reason", why}},
                fmt::format("job {}: its profile is not used: {}", job.id, why));
}

/// Takes the user's description of the job's model; without an object there is none.
void Controller::take_sheet(ElasticJob& job, const Json& model, double now) {
  job.sheet.reset();
  job.refused_sheet.clear();
  if (!model.is_object()) return;
  auto sheet = ModelSheet::read(model);
  if (sheet) {
    job.sheet = std::move(*sheet);
    check_table(job);
    if (!job.described_since) job.described_since = now;
  } else {
    job.refused_sheet = sheet.error().message();
    events_.event("model-refused", {{"job", job.id}, {"reason", job.refused_sheet}},
                  fmt::format("job {}: its model is not used: {}", job.id, job.refused_sheet));
  }
}

/// Drops the table of a job that trains another model.
void Controller::check_table(ElasticJob& job) {
  const auto table = control::SpeedTable::parse(job.speeds);
  const std::string model = control::SpeedTable::word_of(job.sheet->model().name);
  if (!table || table->model == model) return;
  job.refused_table = fmt::format(
      "its table is of model {}, and it trains {}: submit with a table of {} (swell plan --grid --json)",
      table->model, model, model);
  job.speeds.clear();
  events_.event("table-refused", {{"job", job.id}, {"reason", job.refused_table}},
                fmt::format("job {}: {}", job.id, job.refused_table));
}

void Controller::take_reports(double now) {
  for (auto& [id, job] : jobs_) {
    if (!job.report || !take_report(job, now)) continue;
    remember(job);
    const auto& speedup = job.training.speedup();
    const bool may_say = events_.may_say(id, now), falls_short = !job.trust.may_grow(now);
    if (may_say) keep_profile(job);
    job.report.reset();
    if (may_say)
      events_.event("profile",
                    {{"job", id},
                     {"samples_per_s", job.training.rate()},
                     {"predicted_speedup", speedup ? speedup->predicted : 1},
                     {"measured_speedup", speedup ? speedup->measured : 1}},
                    fmt::format("job {}: {:.4g} samples a second{}{}", id, job.training.rate(),
                                falls_short ? "; " : "", falls_short ? job.trust.why() : ""));
  }
}

/// Reclaims GPUs lent before a job's profile was refused, the youngest first: with a true profile
/// that shows no gain it would lose them as well. GPUs that its user asked for stay.
void Controller::take_back_from_distrusted(ElasticJob& job, double now) {
  int total = job.basic_gpus;
  for (const Companion& companion : job.companions)
    if (!companion.leaving) total += companion.gpus.count;
  for (Companion& companion : std::views::reverse(job.companions)) {
    if (companion.leaving || total - companion.gpus.count < job.asked_gpus()) continue;
    total -= companion.gpus.count;
    reclaim(job, companion, now, "shortfall", "its profile is not used: " + job.refused_report);
    decide_due_ = true;
  }
}

/// Takes back what brings less than was promised, or was never shown to bring anything, and what
/// its owner wants no more.
void Controller::keep_promises(double now) {
  for (auto& [id, job] : jobs_) {
    if (const slurm::JobRecord* record =
            job.spec.deadline && !job.suspended_since ? record_of(id) : nullptr)
      if (const auto why = job.deadline.passes(
              snapshot_.taken, deadline_of(job.spec.deadline, *record), record->start_time))
        events_.event("deadline-missed", {{"job", id}, {"reason", *why}},
                      fmt::format("job {} has missed its deadline: {}", id, *why));
    if (job.trust.is_over(now)) {
      for (Companion& companion : job.companions)
        if (!companion.leaving) reclaim(job, companion, now, "shortfall", job.trust.why());
      job.trust.reclaimed(now);
      decide_due_ = true;
    }
    if (planning_ && job.is_distrusted() && now >= *job.refused_since + policy::Trust::kTrial_s)
      take_back_from_distrusted(job, now);
    if (job.own_max == 0) continue;
    int total = job.basic_gpus;
    for (const Companion& companion : job.companions)
      if (!companion.leaving) total += companion.gpus.count;
    for (Companion& companion : job.companions) {
      if (companion.leaving || total <= job.own_max) continue;
      total -= companion.gpus.count;
      reclaim(job, companion, now, "owner",
              fmt::format("its owner wants at most {}", count_of(job.own_max, "GPU")));
    }
  }
}

/// Reclaims GPUs lent to an account or a QOS beyond its limit, which may be lower since the
/// last start: from the youngest jobs first.
void Controller::keep_quotas(double now) {
  if (!has_quotas(parts_.config)) return;
  Quotas quotas(parts_.config, snapshot_, jobs_, {});
  for (auto job = jobs_.rbegin(); job != jobs_.rend(); ++job)
    for (Companion& companion : job->second.companions) {
      const int excess = quotas.excess(job->first);
      if (excess == 0) break;
      if (companion.leaving) continue;
      reclaim(job->second, companion, now, "limit",
              fmt::format("{} beyond what MaxLentByAccount and MaxLentByQOS allow",
                          count_of(excess, "GPU")));
      quotas.leaves(job->first, companion.gpus.count);
    }
}

/// Reclaims companions that keep another job of the same user or account pending by Slurm's limits.
void Controller::keep_user_limits(double now) {
  for (const UserLimits::Reclaim& each :
       user_limits_.look(snapshot_, jobs_, parts_.book->outstanding(), now)) {
    ElasticJob& job = jobs_.at(each.job);
    if (Companion* companion = job.companions.find(each.companion))
      reclaim(job, *companion, now, "limit", each.reason);
  }
}

/// Why a job has no profile, and is not planned for by data sheets either.
std::string Controller::why_no_profile(const ElasticJob& job, double now) const {
  const std::string none = "its program has reported no profile";
  if (!job.refused_sheet.empty()) return none + ", and its model is not used: " + job.refused_sheet;
  if (!job.sheet) return none;
  if (!policy::policy_reads_data_sheets(parts_.config.policy))
    return fmt::format("{}, and policy {} reads no data sheets", none, parts_.config.policy);
  if (job.spec.consistency != control::Consistency::relaxed)
    return none + ", and with consistency=exact data sheets alone make no plan";
  if (!job.plan_refused.empty())
    return none + ", and refused the plan by data sheets: " + job.plan_refused;
  if (job.is_sheet_too_old(now))
    return fmt::format(
        "{} within {:.0f} s of training, or {:.0f} s of its agent's first word: "
        "data sheets are believed no longer",
        none, ElasticJob::kSheetBelieved_s, ElasticJob::kSheetWaits_s);
  return none + ", and by data sheets no plan over its own GPUs fits";
}

/// Says for each job what its expansions are decided by, and why.
void Controller::explain(const policy::ClusterView& view) {
  const bool plans = policy::policy_plans(parts_.config.policy);
  for (const policy::ElasticJobView& seen : view.jobs) {
    ElasticJob& job = jobs_.at(seen.id);
    std::string by = "worker by worker", why;
    const bool can_plan = policy::Expansions::can_plan(seen, view);
    const policy::GrowthHold by_profile =
        policy::profile_hold(growth_facts(job, {}, seen, view, parts_.config, 0));
    if (can_plan && !seen.training->is_measured()) {
      by = "by data sheet";
      why = fmt::format("until it reports a profile, by the model that it was said to train: {}",
                        job.sheet->summary());
    } else if (can_plan) {
      by = "planned";
      const auto& speedup = job.training.speedup();
      why = fmt::format("it does {:.4g} samples a second", job.training.rate());
      if (speedup)
        why += fmt::format(", {:.2f} times as many as alone, {:.2f} predicted", speedup->measured,
                           speedup->predicted);
      if (job.training.makes_own_plans()) why += "; the program makes its own plans";
    } else if (!plans) {
      why = fmt::format("policy {} makes no plans", parts_.config.policy);
    } else if (by_profile == policy::GrowthHold::profile_refused) {
      if (job.wanted_gpus <= job.basic_gpus) by = "not at all";
      why = distrust(job);
    } else if (by_profile == policy::GrowthHold::profile_needed) {
      by = "not at all";
      why = "LendWithoutProfile=no in swell.conf, and " + why_no_profile(job, view.now_s);
    } else if (!job.refused_report.empty()) {
      why = "its profile is not used: " + job.refused_report;
    } else if (job.spec.mode != control::Mode::live) {
      why = "only programs of live mode report a profile";
    } else if (!job.training.is_known()) {
      why = why_no_profile(job, view.now_s);
    } else {
      const Result<JobGpus> gpus = gpus_of(job);
      why = gpus ? "no plan over its GPUs was found" : gpus.error().message();
    }
    if (!job.trust.may_grow(view.now_s)) why = job.trust.why();
    if (job.decided_by != by)
      events_.event("decided-by", {{"job", job.id}, {"by", by}, {"reason", why}},
                    fmt::format("job {} is decided {}: {}", job.id, by, why));
    job.decided_by = by;
    job.decided_why = why;
  }
}

void Controller::remember(const ElasticJob& job) {
  saved_.jobs[job.id] = {static_cast<std::int64_t>(job.started),
                         job.training,
                         job.paused,
                         job.own_max,
                         job.replans.is_owners() ? job.replans.companions() : std::vector<JobId>{},
                         job.pauses};
}

}  // namespace swell::controller
