// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/slurm_changes.h"

#include <fmt/format.h>
#include <string>
#include <utility>
#include <vector>

#include "controller/refusals.h"
#include "core/count_of.h"

namespace swell::controller {

std::optional<bool> SlurmChanges::look(double now) {
  Result<std::optional<slurm::Snapshot>> loaded = loop_.slurm.load();
  if (!loaded) {
    loop_.events.trouble("slurmctld", "slurmctld did not answer: " + loaded.error().message());
    return std::nullopt;
  }
  loop_.events.fixed("slurmctld");
  if (!loaded->has_value()) {
    const auto passed = static_cast<std::time_t>(now - snapshot_at_.value_or(now));
    loop_.snapshot.taken += passed;
    if (snapshot_at_) *snapshot_at_ += static_cast<double>(passed);
    return false;
  }
  take(std::move(**loaded), now);
  return true;
}

void SlurmChanges::take(slurm::Snapshot snapshot, double now) {
  snapshot.just_left = slurm::left_between(loop_.snapshot, snapshot);
  snapshot.kept_nodes = slurm::keep_for_restarts(loop_.snapshot, snapshot);
  loop_.snapshot = std::move(snapshot);
  ++looks_;
  if (first_look_ == 0) first_look_ = loop_.snapshot.taken;
  const bool is_first = !snapshot_at_;
  snapshot_at_ = now;
  // The next look has node records that are newer than these job records, and decides anew.
  if (!loop_.snapshot.just_left.empty()) loop_.slurm.forget();
  const policy::ArrivalFilter& arrivals = loop_.config.arrivals;
  loop_.saved.submissions.look(loop_.snapshot, arrivals.window_s, arrivals.gpus);
  loop_.decision.ask();
  if (loop_.tags != nullptr) loop_.tags->look(loop_.snapshot.jobs);
  const Reconciled result = reconcile(loop_.snapshot, loop_.jobs, loop_.saved.issued, now);
  comments_.look();
  for (const auto& [nonce, grant] : result.adopted) {
    loop_.saved.issued[nonce] = grant;
    loop_.saved.issued[nonce].qos = loop_.config.expansion_qos;
  }
  // Before report() withdraws their grants: job_modify must know them by one or the other.
  std::vector<JobId> companions;
  for (const auto& [id, job] : loop_.jobs)
    for (const Companion& companion : job.companions) companions.push_back(companion.id);
  loop_.book.companions().set(std::move(companions));

  for (const Change& change : result.changes) report(change, now);
  if (is_first && loop_.history != nullptr) {
    std::vector<JobId> running;
    for (const auto& [id, job] : loop_.jobs) running.push_back(id);
    loop_.history->running(std::move(running));
  }
  for (const auto& [companion, reason] : result.cancel) reclaimer_.cancel(companion, reason);
  std::erase_if(loop_.saved.jobs,
                [&](const auto& saved) { return !loop_.jobs.contains(saved.first); });
  // Jobs that ended while nobody looked, as at a restart.
  std::erase_if(loop_.saved.issued,
                [&](const auto& issued) { return !loop_.jobs.contains(issued.second.parent); });
}

void SlurmChanges::report(const Change& change, double now) {
  if (change.kind == Change::Kind::job_ended) return job_ended(change.job);
  const auto found = loop_.jobs.find(change.job);
  if (found == loop_.jobs.end()) return;
  ElasticJob& job = found->second;
  switch (change.kind) {
    case Change::Kind::job_started: return job_started(job, now);
    case Change::Kind::companion_started: return companion_started(job, change.companion, now);
    case Change::Kind::companion_preempted: return companion_preempted(job, change.companion, now);
    case Change::Kind::companion_excessive: return companion_excessive(job, change.companion, now);
    case Change::Kind::companion_ended: return companion_ended(job, change.companion);
    case Change::Kind::companion_lost: return companion_lost(job, change.companion, now);
    case Change::Kind::job_ended: break;
  }
}

void SlurmChanges::say(const char* kind, JobId job, const Companion& companion,
                       const std::string& sentence) {
  loop_.events.event(kind,
                     {{"job", job},
                      {"companion", companion_json(companion)},
                      {"reason", companion.departure().reason()}},
                     sentence);
}

void SlurmChanges::job_started(ElasticJob& job, double now) {
  if (const auto saved = loop_.saved.jobs.find(job.id);
      saved != loop_.saved.jobs.end() && saved->second.started == job.started) {
    job.training = saved->second.training;
    job.limits = JobLimits(saved->second.paused, saved->second.own_max);
    job.pauses = saved->second.pauses;
    if (!saved->second.owners_plan.empty()) job.replans = Replans(saved->second.owners_plan);
    job.trust.heard(job.training.speedup(), now, loop_.config.max_shortfall);
  }
  loop_.events.event("job-started", {{"job", job.id}, {"basic_gpus", job.basic_gpus}},
                     fmt::format("elastic job {} runs", job.id));
}

void SlurmChanges::job_ended(JobId id) {
  loop_.events.event("job-ended", {{"job", id}}, fmt::format("elastic job {} has ended", id));
  loop_.book.withdraw_all(id);
  std::erase_if(loop_.saved.issued, [&](const auto& issued) { return issued.second.parent == id; });
  loop_.sessions.close_all_of(id);
}

void SlurmChanges::companion_started(ElasticJob& job, const Companion& companion, double now) {
  loop_.book.withdraw(companion.grant);
  job.agent.await(now);
  job.offers.taken_up();
  if (Companion* begun = job.companions.find(companion.id))
    begun->workers_before = job.agent_words.last().workers;
  job.stay(now, 0);  // the site's time runs since the offer
  loop_.events.event(
      "companion-started",
      {{"job", job.id},
       {"companion", companion_json(companion)},
       {"reason", companion.departure().reason()},
       {"grant", companion.grant}},
      fmt::format("job {} is lent {} on {} (companion {})", job.id,
                  count_of(companion.gpus.count, "GPU"), companion.node, companion.id));
}

void SlurmChanges::companion_preempted(ElasticJob& job, const Companion& companion, double now) {
  loop_.events.event("companion-preempted",
                     {{"job", job.id},
                      {"companion", companion_json(companion)},
                      {"reason", companion.departure().reason()},
                      {"was_leaving", companion.departure().was_under_way()}},
                     fmt::format("Slurm preempts companion {} of job {} on {}", companion.id,
                                 job.id, companion.node));
  job.lending.take_back(companion.departure().reason());
  reclaimer_.tell(job, companion, now);
  if (job.agent.is_connected()) job.ordered.ordered(now);
}

void SlurmChanges::companion_excessive(ElasticJob& job, const Companion& companion, double now) {
  job.offers.refuse(refused::kExcess);
  job.lending.take_back(companion.departure().reason());
  job.growth_failed(now, loop_.config.growth_interval_s);
  say("companion-excessive", job.id, companion,
      fmt::format("companion {} of job {} is not what was granted", companion.id, job.id));
}

void SlurmChanges::companion_ended(ElasticJob& job, const Companion& companion) {
  loop_.saved.issued.erase(companion.grant);
  loop_.events.fixed(subject_of(companion.id));
  job.lending.count_reclaim();
  say("companion-ended", job.id, companion,
      fmt::format("job {} gave {} on {} back (companion {})", job.id,
                  count_of(companion.gpus.count, "GPU"), companion.node, companion.id));
}

void SlurmChanges::companion_lost(ElasticJob& job, const Companion& companion, double now) {
  loop_.saved.issued.erase(companion.grant);
  loop_.events.fixed(subject_of(companion.id));
  say("companion-lost", job.id, companion,
      fmt::format("job {} lost companion {} on {}", job.id, companion.id, companion.node));
  // swellrun gives all back as Slurm stops it, and can say nothing of it.
  const bool is_stopped = job.suspended_since.has_value();
  const std::string ended =
      is_stopped ? "ended since Slurm suspends its job" : "ended though Swell had not asked for it";
  if (Companion* ending = job.companions.find(companion.id))
    reclaimer_.explain_end(*ending, "it " + ended);
  job.gone.lose(companion.id, companion.node);
  job.lending.take_back(fmt::format("companion {} on {} {}", companion.id, companion.node, ended));
  reclaimer_.tell_ended(job, companion.id);
  job.stay(now, loop_.config.growth_interval_s);
  if (!companion.used && !is_stopped) job.growth_failed(now, loop_.config.growth_interval_s);
}

}  // namespace swell::controller
