// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/controller.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <fmt/format.h>
#include <limits>
#include <set>
#include <tuple>

#include "controller/refusals.h"
#include "core/count_of.h"
#include "core/policy/registry.h"

namespace swell::controller {

namespace {

/// A preempted or reclaimed companion that outlives its deadline is cancelled this much later, so
/// that an agent that acts at the last moment is not overtaken.
constexpr double kDeadlineSlack_s = 1;
/// A cancellation is asked for again after it, where Slurm did not hear it.
constexpr double kCancelAgain_s = 10;
/// How often EventLog gets a line about the rounds' times, in a queue that changes.
constexpr double kRoundsToldEvery_s = 10;
/// A script that has not started swellrun is told so after this.
constexpr double kAlone_s = 60;
/// Seconds from one write of what agents alone have changed to the next, at least.
constexpr double kStateEvery_s = 2;

/// Lost companions of one job of which its agent may still say that they failed.
constexpr std::size_t kMaxLostKept = 16;

/// slurmctld holds an update of a job back, for a second at a time, until slurmdbd knows the job:
/// that would hold up everything else here.
constexpr double kNewJobLeftAlone_s = 2;
constexpr double kCommentPause_s = 300;
/// As where slurmdbd is away, or a backup has just taken over: each try holds this thread for 5 s.
constexpr double kCommentsWait_s = 5, kMaxCommentsWait_s = 20;

double clock_s(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Names what EventLog::say_once() says of the companion's cancellation.
std::string subject_of(JobId companion) { return fmt::format("companion {}", companion); }

Json companion_json(const Companion& companion) {
  return Json::object({{"id", companion.id},
                       {"node", companion.node},
                       {"gpus", companion.gpus.count},
                       {"gpu_indices", companion.gpus.indices}});
}

}  // namespace

Controller::Controller(Parts parts)
    : parts_(std::move(parts)),
      events_(parts_.config.event_log, parts_.log),
      fabric_(parts_.fabric_files),
      sessions_(*parts_.server) {
  const bool plans = policy::policy_plans(parts_.config.policy);
  Result<std::unique_ptr<policy::Policy>> policy =
      policy::make_policy(parts_.config.policy, {.aggressiveness = parts_.config.aggressiveness,
                                                 .fairness = parts_.config.fairness,
                                                 .executor = plans ? planning_helpers() : nullptr,
                                                 .budget = solve_budget,
                                                 .arrivals = parts_.config.arrivals,
                                                 .objective = parts_.config.objective});
  if (policy) policy_ = std::move(*policy);
  if (policy_ && plans) planning_ = std::make_unique<Planning>(*policy_, parts_.wake);
  events_.set_listener([this](const std::string& kind, const Json& line) { heard(kind, line); });
  events_.set_owners([this](std::uint64_t id) -> std::optional<uid_t> {
    const auto job = jobs_.find(static_cast<JobId>(id));
    return job != jobs_.end() ? std::optional<uid_t>(job->second.uid) : std::nullopt;
  });
  if (!parts_.place_problem.empty())
    events_.trouble("place", "swell_place could not be saved: " + parts_.place_problem);
  if (parts_.state_path.empty()) return;
  std::vector<std::string> dropped;
  Result<SavedState> saved = load_state(parts_.state_path, &dropped);
  for (const std::string& what : dropped) events_.say("the saved state: " + what);
  if (saved) {
    saved_ = *saved;  // and written at once: it is known soon whether it can be
    return;
  }
  events_.trouble("state", "going on without the saved state: " + saved.error().message());
  written_ = saved_;
}

double Controller::cycle(double now) {
  const double begin = clock_s(CLOCK_MONOTONIC), own_begin = clock_s(CLOCK_THREAD_CPUTIME_ID);
  events_.begin_round(now);
  seen_by_askers_.reset();
  handle_agents(now);
  const std::optional<bool> looked = look(now);
  // A slurmctld that has just not answered is not waited for once more.
  if (looked) settle_unseen(now);
  answer_hellos(now);
  answer_history(now);
  keep_deadlines(now);
  if (snapshot_at_) {
    decide_due_ = saved_.health.pass(snapshot_.taken, parts_.config.withhold_s) || decide_due_;
    take_reports(now);
    keep_promises(now);
    keep_quotas(now);
    keep_user_limits(now);
    return_what_must(now);
    tell_the_alone();
    choose_types(now);
    take_planned(now, {}, false);
    if (decide_due_) decide(now);
  }
  save_in_time(now);
  write_comments(now);
  meters_.pass(now, jobs_);
  last_own_s_ = clock_s(CLOCK_THREAD_CPUTIME_ID) - own_begin;
  if (looked.value_or(false) && events_.kept()) note_round(clock_s(CLOCK_MONOTONIC) - begin, now);
  const double due = now + parts_.config.poll_interval_s;
  return saved_at_ && saved_ != written_ ? std::min(due, *saved_at_ + kStateEvery_s) : due;
}

void Controller::note_round(double seconds, double now) {
  RoundTimes& times = round_times_;
  if (times.took_s.empty()) times.since = now;
  times.took_s.push_back(seconds);
  times.own_sum_s += last_own_s_;
  times.decide_sum_s += last_decide_s_;
  if (now - times.since < kRoundsToldEvery_s) return;
  std::sort(times.took_s.begin(), times.took_s.end());
  const double rounds = static_cast<double>(times.took_s.size());
  events_.event("rounds", {{"rounds", times.took_s.size()},
                           {"median_ms", 1000 * times.took_s[times.took_s.size() / 2]},
                           {"max_ms", 1000 * times.took_s.back()},
                           {"own_ms", 1000 * times.own_sum_s / rounds},
                           {"decide_ms", 1000 * times.decide_sum_s / rounds},
                           {"max_planning_ms", 1000 * times.planning_max_s}});
  times = RoundTimes{};
}

// ---- Slurm's records

std::optional<bool> Controller::look(double now) {
  Result<std::optional<slurm::Snapshot>> loaded = parts_.slurm->load();
  if (!loaded) {
    events_.trouble("slurmctld", "slurmctld did not answer: " + loaded.error().message());
    return std::nullopt;
  }
  events_.mended("slurmctld");
  if (!loaded->has_value()) {
    const auto passed = static_cast<std::time_t>(now - snapshot_at_.value_or(now));
    snapshot_.taken += passed;
    if (snapshot_at_) *snapshot_at_ += static_cast<double>(passed);
    return false;
  }
  loaded->value().just_left = slurm::left_between(snapshot_, **loaded);
  loaded->value().kept_nodes = slurm::keep_for_restarts(snapshot_, **loaded);
  snapshot_ = std::move(**loaded);
  ++looks_;
  if (first_look_ == 0) first_look_ = snapshot_.taken;
  const bool is_first = !snapshot_at_;
  snapshot_at_ = now;
  // The next look has node records that are newer than these job records, and decides anew.
  if (!snapshot_.just_left.empty()) parts_.slurm->forget();
  const policy::ArrivalFilter& arrivals = parts_.config.arrivals;
  saved_.submissions.look(snapshot_, arrivals.window_s, arrivals.gpus);
  decide_due_ = true;
  if (parts_.tags != nullptr) parts_.tags->look(snapshot_.jobs);
  const Reconciled result = reconcile(snapshot_, jobs_, saved_.issued, now);
  for (const auto& [nonce, grant] : result.adopted) {
    saved_.issued[nonce] = grant;
    saved_.issued[nonce].qos = parts_.config.expansion_qos;
  }
  // Before report() withdraws their grants: job_modify must know them by one or the other.
  std::vector<JobId> companions;
  for (const auto& [id, job] : jobs_)
    for (const Companion& companion : job.companions) companions.push_back(companion.id);
  parts_.book->set_companions(std::move(companions));

  for (const Change& change : result.changes) report(change, now);
  if (is_first && parts_.history != nullptr) {
    std::vector<JobId> running;
    for (const auto& [id, job] : jobs_) running.push_back(id);
    parts_.history->running(std::move(running));
  }
  for (const auto& [companion, reason] : result.cancel) cancel(companion, reason);
  std::erase_if(saved_.jobs, [&](const auto& saved) { return !jobs_.contains(saved.first); });
  // Jobs that ended while nobody looked, as at a restart.
  std::erase_if(saved_.issued,
                [&](const auto& issued) { return !jobs_.contains(issued.second.parent); });
  return true;
}

void Controller::report(const Change& change, double now) {
  const JobId job_id = change.job;
  const Companion& companion = change.companion;
  const auto found = jobs_.find(job_id);
  ElasticJob* job = found != jobs_.end() ? &found->second : nullptr;
  auto event = [&](const char* name, const std::string& sentence) {
    events_.event(
        name,
        {{"job", job_id}, {"companion", companion_json(companion)}, {"reason", companion.reason}},
        sentence);
  };
  switch (change.kind) {
    case Change::Kind::job_started:
      if (const auto saved = saved_.jobs.find(job_id);
          job != nullptr && saved != saved_.jobs.end() && saved->second.started == job->started) {
        job->training = saved->second.training;
        job->paused = saved->second.paused;
        job->own_max = saved->second.own_max;
        job->pauses = saved->second.pauses;
        if (!saved->second.owners_plan.empty()) job->replans = Replans(saved->second.owners_plan);
        job->trust.heard(job->training.speedup(), now, parts_.config.max_shortfall);
      }
      events_.event("job-started",
                    {{"job", job_id}, {"basic_gpus", job != nullptr ? job->basic_gpus : 0}},
                    fmt::format("elastic job {} runs", job_id));
      break;
    case Change::Kind::job_ended:
      events_.event("job-ended", {{"job", job_id}},
                    fmt::format("elastic job {} has ended", job_id));
      parts_.book->withdraw_all(job_id);
      std::erase_if(saved_.issued,
                    [&](const auto& issued) { return issued.second.parent == job_id; });
      sessions_.close_all_of(job_id);
      break;
    case Change::Kind::companion_started:
      parts_.book->withdraw(companion.grant);
      if (job != nullptr) {
        if (!job->agent) job->agent_seen = now;
        job->offered = false;
        if (Companion* begun = job->companions.find(companion.id))
          begun->workers_before = job->workers;
        job->stay(now, 0);  // the site's time runs since the offer
      }
      events_.event(
          "companion-started",
          {{"job", job_id},
           {"companion", companion_json(companion)},
           {"reason", companion.reason},
           {"grant", companion.grant}},
          fmt::format("job {} is lent {} on {} (companion {})", job_id,
                      count_of(companion.gpus.count, "GPU"), companion.node, companion.id));
      break;
    case Change::Kind::companion_preempted:
      events_.event("companion-preempted",
                    {{"job", job_id},
                     {"companion", companion_json(companion)},
                     {"reason", companion.reason},
                     {"was_leaving", companion.was_leaving}},
                    fmt::format("Slurm preempts companion {} of job {} on {}", companion.id, job_id,
                                companion.node));
      if (job != nullptr) {
        job->taken_back = companion.reason;
        tell_shrink(*job, companion, now);
        if (job->agent) job->ordered.ordered(now);
      }
      break;
    case Change::Kind::companion_excessive:
      if (job != nullptr) {
        ++job->refusals;
        job->refused_for = refused::kExcess;
        job->taken_back = companion.reason;
        growth_failed(*job, now);
      }
      event("companion-excessive",
            fmt::format("companion {} of job {} is not what was granted", companion.id, job_id));
      break;
    case Change::Kind::companion_ended:
      saved_.issued.erase(companion.grant);
      events_.mended(subject_of(companion.id));
      if (job != nullptr) ++job->reclaims;
      event("companion-ended",
            fmt::format("job {} gave {} on {} back (companion {})", job_id,
                        count_of(companion.gpus.count, "GPU"), companion.node, companion.id));
      break;
    case Change::Kind::companion_lost:
      saved_.issued.erase(companion.grant);
      events_.mended(subject_of(companion.id));
      event("companion-lost",
            fmt::format("job {} lost companion {} on {}", job_id, companion.id, companion.node));
      if (job != nullptr) {
        // swellrun gives all back as Slurm stops it, and can say nothing of it.
        const bool is_stopped = job->suspended_since.has_value();
        const std::string ended = is_stopped ? "ended since Slurm suspends its job"
                                             : "ended though Swell had not asked for it";
        if (Companion* ending = job->companions.find(companion.id)) ending->reason = "it " + ended;
        job->lost[companion.id] = companion.node;
        if (job->lost.size() > kMaxLostKept) job->lost.erase(job->lost.begin());
        Companion gone = companion;
        job->taken_back = fmt::format("companion {} on {} {}", companion.id, companion.node, ended);
        gone.reason = kHasEnded;
        gone.deadline = now;
        tell_shrink(*job, gone, now);
        job->stay(now, parts_.config.growth_interval_s);
        if (!companion.used && !is_stopped) growth_failed(*job, now);
      }
      break;
  }
}

void Controller::cancel(const CompanionIdentity& companion, const std::string& reason) {
  parts_.slurm->forget();
  const Result<std::optional<slurm::JobRecord>> record = parts_.slurm->load_job(companion.id);
  const std::string subject = subject_of(companion.id);
  if (!record) return events_.say_once(subject, record.error().message());
  using slurm::JobPhase;
  if (!*record || (*record)->phase == JobPhase::ended || (*record)->phase == JobPhase::completing)
    return events_.mended(subject);
  if (const Result<void> same = check_identity(**record, companion); !same) {
    events_.event(
        "cancel-refused",
        {{"job", companion.parent},
         {"companion", Json::object({{"id", companion.id}})},
         {"reason", same.error().message()}},
        fmt::format("companion {} is not cancelled: {}", companion.id, same.error().message()));
    return;
  }
  events_.event("cancel",
                {{"job", companion.parent},
                 {"companion", Json::object({{"id", companion.id}})},
                 {"reason", reason}},
                fmt::format("cancelling companion {}: {}", companion.id, reason));
  if (Result<void> done = parts_.slurm->cancel(companion.id); !done)
    events_.say_once(subject, done.error().message());
  else events_.mended(subject);
}

void Controller::tell_shrink(ElasticJob& job, const Companion& companion, double now) {
  if (!job.agent) return;
  control::Shrink shrink;
  shrink.companions = {companion.id};
  shrink.deadline_s = static_cast<int>(std::ceil(std::max(companion.deadline - now, 0.0)));
  shrink.reason = companion.reason;
  sessions_.send(*job.agent, std::move(shrink));
}

// ---- jobs without swellrun

void Controller::tell_the_alone() {
  for (auto& [id, job] : jobs_) {
    if (job.told_alone || job.agent || job.agent_since > 0 || job.suspended_since) continue;
    // Whether a job that began before the controller had a swellrun is not known.
    if (job.started < first_look_ || static_cast<double>(snapshot_.taken - job.started) < kAlone_s)
      continue;
    job.told_alone = true;
    events_.event("no-swellrun", {{"job", id}},
                  fmt::format("job {}: its script has not started swellrun", id));
    const auto told = parts_.slurm->tell(
        id,
        "swell: this job was submitted with --elastic, but its script has not started swellrun, "
        "so it is lent no GPUs: write \"swellrun python train.py\" in place of srun or torchrun");
    if (!told) events_.say(told.error().message());
  }
}

// ---- deadlines

void Controller::keep_deadlines(double now) {
  std::set<JobId> failed;  // also where another offer of the same moment was taken up
  for (const LiveGrant& expired : parts_.book->take_expired(now)) {
    decide_due_ = true;
    saved_.issued.erase(expired.offer.nonce);
    const auto found = jobs_.find(expired.parent);
    if (found == jobs_.end()) continue;
    ElasticJob& job = found->second;
    ++job.refusals;
    job.refused_for = refused::kExpired;
    events_.event("grant-expired", {{"job", job.id}, {"node", expired.offer.node}},
                  fmt::format("job {} did not take up {} on {}", job.id,
                              count_of(expired.offer.gpus, "GPU"), expired.offer.node));
    failed.insert(job.id);
  }
  for (const JobId job : failed) growth_failed(jobs_.at(job), now);
  for (auto& [id, job] : jobs_) {
    if (!job.agent && !job.companions.empty() &&
        now - job.agent_seen >= parts_.config.agent_timeout_s)
      for (Companion& companion : job.companions)
        if (!companion.leaving)
          leave(job, companion, now, "agent", fmt::format("job {} has no agent any more", id),
                now - kDeadlineSlack_s);
    for (Companion& companion : job.companions) {
      if (!companion.leaving || companion.lost || now < companion.deadline + kDeadlineSlack_s)
        continue;
      cancel(job.identity(companion),
             companion.reason.empty() ? "its time is over" : companion.reason);
      companion.deadline = now + kCancelAgain_s;
    }
    for (double* until : {&job.grow_after, &job.stays_until})
      if (!decide_due_ && job.agent && *until > 0 && now >= *until) {
        *until = 0;
        decide_due_ = true;
      }
  }
}

void Controller::end_all(ElasticJob& job, double now, const std::string& reason) {
  // No agent is left that needs a grace period.
  job.companions.leave(now - kDeadlineSlack_s, reason);
}

// ---- what others see

void Controller::save() {
  save_due_ = false;
  if (parts_.state_path.empty() || saved_ == written_) return;
  if (Result<void> done = save_state(parts_.state_path, saved_); !done)
    return events_.trouble("state", "the state could not be saved: " + done.error().message());
  written_ = saved_;
  events_.mended("state");
}

/// As save(), but what agents alone have changed is written no more often than kStateEvery_s: they
/// change it as they like, and a write waits for the disk. After a trouble it is also written
/// without a change, but not over a file that cannot be read: that may still be repaired.
void Controller::save_in_time(double now) {
  const bool is_written = saved_ == written_;
  if (parts_.state_path.empty() || (is_written && !events_.troubles().contains("state"))) return;
  const bool is_told = !save_due_ && (!written_ || saved_.issued == written_->issued);
  if (is_told && saved_at_ && now < *saved_at_ + kStateEvery_s) return;
  if (is_written) {
    saved_at_ = now;
    if (!load_state(parts_.state_path)) return;
    written_.reset();
  }
  const bool is_first = !written_;
  save();
  if (!is_first || !written_) saved_at_ = now;
}

/// slurmctld has held the controller for a while, and could not write this job's AdminComment.
void Controller::comment_waits(ElasticJob& job, double now) {
  CommentsWait& all = comments_wait_;
  if (all.pause_s == 0)
    events_.say(fmt::format("slurmctld cannot write AdminComment of job {} yet", job.id));
  all.pause_s = std::clamp(2 * all.pause_s, kCommentsWait_s, kMaxCommentsWait_s);
  all.again_until = now + all.pause_s;
  // Only news hold up jobs that have not waited themselves.
  if (job.comment.waited == 0) all.until = all.again_until;
  job.comment.again_at =
      now + std::min(std::ldexp(kCommentsWait_s, job.comment.waited), kCommentPause_s);
  job.comment.waited = std::min(job.comment.waited + 1, 10);
}

void Controller::write_comments(double now) {
  bool waits = false;
  std::vector<std::pair<ElasticJob*, std::string>> due;
  for (auto& [id, job] : jobs_) {
    waits = waits || job.comment.waited > 0;
    if (now - job.first_seen < kNewJobLeftAlone_s) continue;
    std::string comment = job.tag().put_into(job.comment.written);
    if (comment != job.comment.written && now >= job.comment.again_at)
      due.emplace_back(&job, std::move(comment));
  }
  if (!waits) comments_wait_.pause_s = 0;
  // The most likely to be written come first, so that jobs with refused comments delay no others.
  std::stable_sort(due.begin(), due.end(), [](const auto& one, const auto& other) {
    const auto rank = [](const ElasticJob::AdminComment& its) {
      return std::tuple(its.waited, !its.taken, its.again_at);
    };
    return rank(one.first->comment) < rank(other.first->comment);
  });
  for (const auto& [next, comment] : due) {
    ElasticJob& job = *next;
    const bool has_waited = job.comment.waited > 0;
    if (now < (has_waited ? comments_wait_.again_until : comments_wait_.until)) break;
    const Result<bool> done = parts_.slurm->set_admin_comment(job.id, comment);
    if (done && !*done) return comment_waits(job, now);
    if (!done) {
      // For example a site's own job_modify may refuse every change.
      double& pause_s = job.comment.pause_s;
      pause_s = std::clamp(2 * pause_s, 1.0, kCommentPause_s);
      job.comment.again_at = now + pause_s;
      job.comment.waited = 0;  // what it waited for is back
      events_.say(fmt::format("{}; it is tried again in {:g} s", done.error().message(), pause_s));
      // Anybody is told this: it names no job.
      const std::string& why = done.error().message();
      const std::size_t last = why.rfind(": ");
      if (pause_s > 1 && !events_.troubles().contains("AdminComment"))
        events_.trouble("AdminComment", "Slurm refuses what Swell writes about jobs: " +
                                            (last != why.npos ? why.substr(last + 2) : why));
      continue;
    }
    job.comment.pause_s = 0;
    job.comment.waited = 0;
    job.comment.taken = true;
    job.comment.written = comment;
    // A change before the next look keeps this tag, not the one before.
    if (parts_.tags != nullptr) parts_.tags->wrote(job.id, comment);
    // slurmdbd, for which the others may have waited too, is likely to be back.
    if (has_waited)
      for (auto& [id, other] : jobs_)
        if (other.comment.waited > 0) other.comment.again_at = 0;
  }
  const bool refused = std::any_of(jobs_.begin(), jobs_.end(),
                                   [](const auto& job) { return job.second.comment.pause_s > 1; });
  if (!refused) events_.mended("AdminComment");
}

}  // namespace swell::controller
