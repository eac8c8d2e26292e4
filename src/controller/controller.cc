// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/controller.h"

#include <algorithm>
#include <ctime>
#include <fmt/format.h>
#include <set>

#include "controller/refusals.h"
#include "core/count_of.h"

namespace swell::controller {

namespace {

/// How often EventLog gets a line about the rounds' times, in a queue that changes.
constexpr double kRoundsToldEvery_s = 10;
/// A script that has not started swellrun is told so after this.
constexpr double kAlone_s = 60;

double clock_s(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

Controller::Controller(Parts parts)
    : loop_{.config = parts.config,
            .slurm = *parts.slurm,
            .book = *parts.book,
            .tags = parts.tags,
            .history = parts.history,
            .events = EventLog(parts.config.event_log, parts.log),
            .sessions = AgentSessions(*parts.server)},
      state_(loop_, parts.state_path),
      comments_(loop_),
      types_(loop_),
      reclaimer_(loop_),
      views_(loop_, parts.fabric_files, parts.preemption),
      requests_(loop_, views_, types_),
      reports_(loop_, views_),
      messages_(loop_, reclaimer_, reports_, requests_),
      decider_(loop_, {views_, reclaimer_, state_, parts.nonce, parts.wake}),
      returns_(loop_, reclaimer_, decider_.plans()) {
  loop_.events.set_listener(
      [this](const std::string& kind, const Json& line) { heard(kind, line); });
  loop_.events.set_owners([this](std::uint64_t id) -> std::optional<uid_t> {
    const auto job = loop_.jobs.find(static_cast<JobId>(id));
    return job != loop_.jobs.end() ? std::optional<uid_t>(job->second.uid) : std::nullopt;
  });
  if (!parts.place_problem.empty())
    loop_.events.trouble("place", "swell_place could not be saved: " + parts.place_problem);
  state_.load();
}

double Controller::cycle(double now) {
  const double begin = clock_s(CLOCK_MONOTONIC), own_begin = clock_s(CLOCK_THREAD_CPUTIME_ID);
  loop_.events.begin_round(now);
  views_.begin_round();
  messages_.take(now);
  const std::optional<bool> looked = look(now);
  // A slurmctld that has just not answered is not waited for once more.
  if (looked) messages_.settle_unseen(now);
  messages_.answer_hellos(now);
  decider_.take_kept_scales();
  messages_.answer_history(now);
  keep_deadlines(now);
  if (snapshot_at_) {
    if (loop_.saved.health.pass(loop_.snapshot.taken, loop_.config.withhold_s))
      loop_.decision.ask();
    reports_.read(now);
    returns_.take_back(now);
    tell_the_alone();
    types_.choose_types(now);
    decider_.take_planned(now);
    if (loop_.decision.is_asked()) decider_.decide(now);
  }
  state_.save_in_time(now);
  comments_.write(now);
  loop_.meters.pass(now, loop_.jobs);
  last_own_s_ = clock_s(CLOCK_THREAD_CPUTIME_ID) - own_begin;
  if (looked.value_or(false) && loop_.events.kept())
    note_round(clock_s(CLOCK_MONOTONIC) - begin, now);
  const double due = now + loop_.config.poll_interval_s;
  return std::min(due, state_.due().value_or(due));
}

void Controller::note_round(double seconds, double now) {
  RoundTimes& times = round_times_;
  if (times.took_s.empty()) times.since = now;
  times.took_s.push_back(seconds);
  times.own_sum_s += last_own_s_;
  times.decide_sum_s += decider_.decide_s();
  if (now - times.since < kRoundsToldEvery_s) return;
  std::sort(times.took_s.begin(), times.took_s.end());
  const double rounds = static_cast<double>(times.took_s.size());
  loop_.events.event("rounds", {{"rounds", times.took_s.size()},
                                {"median_ms", 1000 * times.took_s[times.took_s.size() / 2]},
                                {"max_ms", 1000 * times.took_s.back()},
                                {"own_ms", 1000 * times.own_sum_s / rounds},
                                {"decide_ms", 1000 * times.decide_sum_s / rounds},
                                {"max_planning_ms", 1000 * decider_.take_max_planning_s()}});
  times = RoundTimes{};
}

// ---- Slurm's records

std::optional<bool> Controller::look(double now) {
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
  loaded->value().just_left = slurm::left_between(loop_.snapshot, **loaded);
  loaded->value().kept_nodes = slurm::keep_for_restarts(loop_.snapshot, **loaded);
  loop_.snapshot = std::move(**loaded);
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
  loop_.book.set_companions(std::move(companions));

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
  return true;
}

void Controller::report(const Change& change, double now) {
  const JobId job_id = change.job;
  const Companion& companion = change.companion;
  const auto found = loop_.jobs.find(job_id);
  ElasticJob* job = found != loop_.jobs.end() ? &found->second : nullptr;
  auto event = [&](const char* name, const std::string& sentence) {
    loop_.events.event(name,
                       {{"job", job_id},
                        {"companion", companion_json(companion)},
                        {"reason", companion.departure().reason()}},
                       sentence);
  };
  switch (change.kind) {
    case Change::Kind::job_started:
      if (const auto saved = loop_.saved.jobs.find(job_id); job != nullptr &&
                                                            saved != loop_.saved.jobs.end() &&
                                                            saved->second.started == job->started) {
        job->training = saved->second.training;
        job->limits = JobLimits(saved->second.paused, saved->second.own_max);
        job->pauses = saved->second.pauses;
        if (!saved->second.owners_plan.empty()) job->replans = Replans(saved->second.owners_plan);
        job->trust.heard(job->training.speedup(), now, loop_.config.max_shortfall);
      }
      loop_.events.event("job-started",
                         {{"job", job_id}, {"basic_gpus", job != nullptr ? job->basic_gpus : 0}},
                         fmt::format("elastic job {} runs", job_id));
      break;
    case Change::Kind::job_ended:
      loop_.events.event("job-ended", {{"job", job_id}},
                         fmt::format("elastic job {} has ended", job_id));
      loop_.book.withdraw_all(job_id);
      std::erase_if(loop_.saved.issued,
                    [&](const auto& issued) { return issued.second.parent == job_id; });
      loop_.sessions.close_all_of(job_id);
      break;
    case Change::Kind::companion_started:
      loop_.book.withdraw(companion.grant);
      if (job != nullptr) {
        job->agent.await(now);
        job->offers.taken_up();
        if (Companion* begun = job->companions.find(companion.id))
          begun->workers_before = job->agent_words.last().workers;
        job->stay(now, 0);  // the site's time runs since the offer
      }
      loop_.events.event(
          "companion-started",
          {{"job", job_id},
           {"companion", companion_json(companion)},
           {"reason", companion.departure().reason()},
           {"grant", companion.grant}},
          fmt::format("job {} is lent {} on {} (companion {})", job_id,
                      count_of(companion.gpus.count, "GPU"), companion.node, companion.id));
      break;
    case Change::Kind::companion_preempted:
      loop_.events.event("companion-preempted",
                         {{"job", job_id},
                          {"companion", companion_json(companion)},
                          {"reason", companion.departure().reason()},
                          {"was_leaving", companion.departure().was_under_way()}},
                         fmt::format("Slurm preempts companion {} of job {} on {}", companion.id,
                                     job_id, companion.node));
      if (job != nullptr) {
        job->lending.take_back(companion.departure().reason());
        reclaimer_.tell(*job, companion, now);
        if (job->agent.is_connected()) job->ordered.ordered(now);
      }
      break;
    case Change::Kind::companion_excessive:
      if (job != nullptr) {
        job->offers.refuse(refused::kExcess);
        job->lending.take_back(companion.departure().reason());
        job->growth_failed(now, loop_.config.growth_interval_s);
      }
      event("companion-excessive",
            fmt::format("companion {} of job {} is not what was granted", companion.id, job_id));
      break;
    case Change::Kind::companion_ended:
      loop_.saved.issued.erase(companion.grant);
      loop_.events.fixed(subject_of(companion.id));
      if (job != nullptr) job->lending.count_reclaim();
      event("companion-ended",
            fmt::format("job {} gave {} on {} back (companion {})", job_id,
                        count_of(companion.gpus.count, "GPU"), companion.node, companion.id));
      break;
    case Change::Kind::companion_lost:
      loop_.saved.issued.erase(companion.grant);
      loop_.events.fixed(subject_of(companion.id));
      event("companion-lost",
            fmt::format("job {} lost companion {} on {}", job_id, companion.id, companion.node));
      if (job != nullptr) {
        // swellrun gives all back as Slurm stops it, and can say nothing of it.
        const bool is_stopped = job->suspended_since.has_value();
        const std::string ended = is_stopped ? "ended since Slurm suspends its job"
                                             : "ended though Swell had not asked for it";
        if (Companion* ending = job->companions.find(companion.id))
          reclaimer_.explain_end(*ending, "it " + ended);
        job->gone.lose(companion.id, companion.node);
        job->lending.take_back(
            fmt::format("companion {} on {} {}", companion.id, companion.node, ended));
        reclaimer_.tell_ended(*job, companion.id);
        job->stay(now, loop_.config.growth_interval_s);
        if (!companion.used && !is_stopped) job->growth_failed(now, loop_.config.growth_interval_s);
      }
      break;
  }
}

// ---- jobs without swellrun

void Controller::tell_the_alone() {
  for (auto& [id, job] : loop_.jobs) {
    if (job.agent.is_told_missing() || job.agent.is_connected() || job.agent.since() > 0 ||
        job.suspended_since)
      continue;
    // Whether a job that began before the controller had a swellrun is not known.
    if (job.started < first_look_ ||
        static_cast<double>(loop_.snapshot.taken - job.started) < kAlone_s)
      continue;
    job.agent.tell_missing();
    loop_.events.event("no-swellrun", {{"job", id}},
                       fmt::format("job {}: its script has not started swellrun", id));
    const auto told = loop_.slurm.tell(
        id,
        "swell: this job was submitted with --elastic, but its script has not started swellrun, "
        "so it is lent no GPUs: write \"swellrun python train.py\" in place of srun or torchrun");
    if (!told) loop_.events.say(told.error().message());
  }
}

// ---- deadlines

void Controller::keep_deadlines(double now) {
  std::set<JobId> failed;  // also where another offer of the same moment was taken up
  for (const LiveGrant& expired : loop_.book.take_expired(now)) {
    loop_.decision.ask();
    loop_.saved.issued.erase(expired.offer.nonce);
    const auto found = loop_.jobs.find(expired.parent);
    if (found == loop_.jobs.end()) continue;
    ElasticJob& job = found->second;
    job.offers.refuse(refused::kExpired);
    loop_.events.event("grant-expired", {{"job", job.id}, {"node", expired.offer.node}},
                       fmt::format("job {} did not take up {} on {}", job.id,
                                   count_of(expired.offer.gpus, "GPU"), expired.offer.node));
    failed.insert(job.id);
  }
  for (const JobId job : failed)
    loop_.jobs.at(job).growth_failed(now, loop_.config.growth_interval_s);
  for (auto& [id, job] : loop_.jobs) {
    reclaimer_.keep_deadlines(job, now);
    if (!loop_.decision.is_asked() && job.agent.is_connected() && job.offers.take_passed(now))
      loop_.decision.ask();
  }
}

}  // namespace swell::controller
