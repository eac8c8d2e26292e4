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
      switcher_(loop_, reclaimer_),
      changes_(loop_, reclaimer_, comments_),
      scales_(loop_),
      views_(loop_, parts.fabric_files, parts.preemption),
      history_(loop_),
      requests_(loop_, views_, types_, switcher_, history_),
      reports_(loop_, views_),
      messages_(loop_, reclaimer_, reports_, requests_),
      decider_(loop_, {views_, reclaimer_, scales_, state_, parts.nonce, parts.wake}),
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
  const std::optional<bool> looked = changes_.look(now);
  // A slurmctld that has just not answered is not waited for once more.
  if (looked) messages_.settle_unseen(now);
  messages_.answer_hellos(now);
  scales_.take_kept();
  history_.answer([&](control::ConnectionId connection, const std::string& reason) {
    messages_.refuse(connection, reason, now);
  });
  keep_deadlines(now);
  if (changes_.has_looked()) {
    if (loop_.saved.health.pass(loop_.snapshot.taken, loop_.config.withhold_s))
      loop_.decision.ask();
    reports_.read(now);
    returns_.take_back(now);
    tell_the_alone();
    types_.choose_types(now);
    switcher_.step(now);
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

// ---- jobs without swellrun

void Controller::tell_the_alone() {
  for (auto& [id, job] : loop_.jobs) {
    if (job.agent.is_told_missing() || job.agent.is_connected() || job.agent.since() > 0 ||
        job.suspended_since)
      continue;
    // For a job that began before this controller, it is not known whether it has run swellrun.
    if (job.started < changes_.first_look() ||
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
