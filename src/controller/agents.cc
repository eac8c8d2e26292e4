// SPDX-License-Identifier: GPL-2.0-or-later
// Part of Controller: messages of agents, and the answers to them.
#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <utility>

#include "control/printable.h"
#include "controller/controller.h"
#include "controller/refusals.h"

namespace swell::controller {

namespace {

/// A companion that an agent does not list is given this long: its allocation may be under way on
/// the agent's former connection.
constexpr double kUnlistedKept_s = 15;
/// An agent that released a companion has cancelled it already; where it did not, this happens so
/// much later.
constexpr double kReleasedKept_s = 5;
/// Added to a user's id for EventLog::may_say(), to tell it from the ids of jobs.
constexpr std::uint64_t kUserSources = std::uint64_t{1} << 32;
/// An agent gives way to another one of its job after it was silent for so many AgentTimeouts.
constexpr double kSilentAgentTimeouts = 4;
/// Bytes of an agent's reason against more GPUs that are kept.
constexpr std::size_t kMaxNoGrowth = 300;
/// An agent's word of its program's start is taken so often at most.
constexpr double kStartEvery_s = 60;
/// The longest wait after growths that failed, in growth intervals.
constexpr int kMaxBackoff = 32;

}  // namespace

void Controller::handle_agents(double now) {
  bool hello_came = false;
  for (const control::Server::Event& event : sessions_.take(now, hello_came)) handle(event, now);
  // Its job, and the companions that it lists, may have started since the last look.
  if (hello_came) parts_.slurm->forget();
}

void Controller::answer_hellos(double now) {
  for (const control::Server::Event& event : sessions_.answerable(jobs_, now)) handle(event, now);
}

void Controller::handle(const control::Server::Event& event, double now) {
  if (sessions_.is_closed(event.connection)) return;  // by what was said just before
  ElasticJob* job = job_of(event.connection);
  if (event.kind == control::Server::Event::Kind::closed) {
    if (job != nullptr) agent_gone(*job, now);
    return sessions_.forget(event.connection);
  }
  if (event.kind == control::Server::Event::Kind::dropped && job != nullptr) {
    const auto* dropped = std::get_if<control::Refused>(&event.message);
    if (dropped != nullptr && events_.may_say(job->id, now))
      events_.say(fmt::format("job {}: left out what its agent says: {}", job->id,
                              control::printable(dropped->reason, kMaxNoGrowth)));
    return;
  }
  if (const auto* hello = std::get_if<control::Hello>(&event.message))
    return handle(event, *hello, now);
  if (const auto* ask = std::get_if<control::Ask>(&event.message); ask != nullptr && job == nullptr)
    return handle(event, *ask, now);
  if (job == nullptr) return refuse(event.connection, "the first message must be a hello", now);
  job->agent_seen = now;
  decide_due_ = true;
  std::visit(
      [&](const auto& message) {
        if constexpr (requires { this->handle(*job, message, now); }) handle(*job, message, now);
        else refuse(event.connection, "this message is not for the controller", now);
      },
      event.message);
}

ElasticJob* Controller::job_of(control::ConnectionId connection) {
  const std::optional<JobId> id = sessions_.job_of(connection);
  const auto job = id ? jobs_.find(*id) : jobs_.end();
  return job != jobs_.end() && job->second.agent == connection ? &job->second : nullptr;
}

void Controller::refuse(control::ConnectionId connection, const std::string& reason, double now) {
  if (ElasticJob* job = job_of(connection)) agent_gone(*job, now);
  sessions_.send(connection, control::Refused{reason});
  sessions_.close(connection);
}

void Controller::handle(const control::Server::Event& event, const control::Hello& hello,
                        double now) {
  const double patience_s = kSilentAgentTimeouts * parts_.config.agent_timeout_s;
  if (const std::string reason = sessions_.reason_to_refuse(event, hello, jobs_, now, patience_s);
      !reason.empty()) {
    if (events_.may_say(kUserSources + event.uid, now))
      events_.say(
          fmt::format("refusing the agent of uid {} at {}: {}", event.uid, event.peer, reason));
    return refuse(event.connection, reason, now);
  }
  welcome(event, hello, jobs_.at(hello.job), now);
}

void Controller::welcome(const control::Server::Event& event, const control::Hello& hello,
                         ElasticJob& job, double now) {
  if (job.agent)
    sessions_.close(*job.agent);  // silent for long: its machine or the network went away
  sessions_.speaks_for(event.connection, job.id);
  job.agent = event.connection;
  job.agent_seen = job.agent_since = now;
  job.gpus_per_worker = hello.gpus_per_worker;
  job.workers = hello.workers;
  job.no_growth = shortened(hello.no_growth, kMaxNoGrowth);
  job.program_sizes = hello.sizes;
  if (hello.companions.empty()) job.ordered.heard(true, job.epoch);  // no growth is under way
  job.training.agent_connected();
  take_sheet(job, hello.model, now);
  decide_due_ = true;
  events_.event("agent-connected", {{"job", job.id}, {"host", hello.host}},
                fmt::format("job {}: its agent on {} has connected", job.id, hello.host));
  sessions_.send(event.connection, control::Welcome{control::kProtocolVersion, job.spec.text()});

  // The two sides' lists of companions become one: what only one side knows is given up.
  auto listed = [&](JobId companion) {
    return std::find(hello.companions.begin(), hello.companions.end(), companion) !=
           hello.companions.end();
  };
  for (Companion& companion : job.companions) {
    if (companion.leaving) {
      tell_shrink(job, companion, now);
    } else if (!listed(companion.id)) {
      leave(job, companion, now, "agent", "the job's agent does not know it",
            std::max(companion.since + kUnlistedKept_s, now));
    }
  }
  for (JobId companion : hello.companions)
    if (job.companions.find(companion) == nullptr) {
      Companion unknown;
      unknown.id = companion;
      unknown.deadline = now;
      unknown.reason = kHasEnded;
      tell_shrink(job, unknown, now);
    }
}

void Controller::handle(ElasticJob& job, const control::GrowDone& done, double now) {
  bool has_failed = false;
  for (const control::OfferResult& result : done.results) {
    // Where it says that there is a companion, Slurm's records will show it, or the grant expires:
    // an agent may name any job.
    if (result.companion != 0) {
      parts_.book->name_companion(result.nonce, job.id, result.companion);
      continue;
    }
    const auto grant = parts_.book->find(result.nonce);
    const auto given_up =
        std::find_if(job.companions.begin(), job.companions.end(), [&](const Companion& companion) {
          return companion.grant == result.nonce && !companion.leaving;
        });
    if (given_up != job.companions.end()) {  // Slurm gave it, and the agent does not want it
      given_up->leave(now + kReleasedKept_s, result.reason);
      job.taken_back = result.reason;
      has_failed = true;
    } else if (!grant || grant->parent != job.id) {
      continue;
    }
    parts_.book->withdraw(result.nonce);
    if (given_up == job.companions.end()) saved_.issued.erase(result.nonce);
    ++job.refusals;
    job.refused_for = refusal_kind(result.reason);
    events_.event("grant-refused",
                  {{"job", job.id}, {"kind", job.refused_for}, {"reason", result.reason}},
                  fmt::format("job {} could not take up its grant: {}", job.id, result.reason));
  }
  has_failed = has_failed || (job.offered && !parts_.book->has_grant_of(job.id));
  if (has_failed) growth_failed(job, now);
  parts_.slurm->forget();
}

/// Takes the job's word of how long its program's start took: no longer than the job has run, and
/// not often, since it is kept in the state file.
void Controller::take_start(ElasticJob& job, double start_s, double now) {
  const auto has_run_s = static_cast<double>(snapshot_.taken - job.started);
  if (start_s <= 0 || start_s > has_run_s) return;
  if (job.start_taken && now < *job.start_taken + kStartEvery_s) return;
  if (!job.pauses.started(start_s)) return;
  job.start_taken = now;
  remember(job);
}

void Controller::growth_failed(ElasticJob& job, double now) {
  job.offered = false;
  job.ordered.called_off();
  ++job.failed_growths;
  const int backoff = std::min(1 << std::min(job.failed_growths - 1, 10), kMaxBackoff);
  job.grow_after = now + std::max(parts_.config.growth_interval_s, 1.0) * backoff;
}

/// Counts a companion that failed, as its agent says, against its node: once, and none that was
/// taken back.
void Controller::companion_failed(ElasticJob& job, const control::Released& released,
                                  const slurm::JobRecord* record) {
  std::string node;
  if (const auto gone = job.lost.find(released.companion); gone != job.lost.end()) {
    node = gone->second;
    job.lost.erase(gone);
  }
  if (Companion* companion = job.companions.find(released.companion)) {
    if (companion->leaving && !companion->lost) return;
    if (std::exchange(companion->failed, true)) return;
    node = companion->node;
  }
  if (node.empty()) return;
  // Slurm preempts at once where there is no GraceTime: the agent sees that its workers are killed.
  const auto loaded = record == nullptr ? parts_.slurm->load_job(released.companion)
                                        : Result<std::optional<slurm::JobRecord>>(*record);
  if (loaded && *loaded && (*loaded)->was_preempted) return;
  const std::string withheld = saved_.health.failed(
      node, job.id, job.uid, snapshot_.taken, snapshot_.nodes.size(), parts_.config.withhold_s);
  events_.event("companion-failed",
                {{"job", job.id},
                 {"companion", Json::object({{"id", released.companion}, {"node", node}})},
                 {"reason", released.reason}});
  if (withheld.empty()) return;
  decide_due_ = true;
  events_.event("node-withheld", {{"job", job.id}, {"node", node}, {"reason", withheld}}, withheld);
}

/// Gives up grants whose companions began and ended between two looks at Slurm's records, as where
/// their steps cannot be launched. Otherwise their GPUs would count as taken until the grants
/// expire. Where Slurm does not answer, it is asked again in the next round.
void Controller::settle_unseen(double now) {
  for (auto& [id, job] : jobs_)
    while (!job.unseen.empty()) {
      const auto& [nonce, released] = *job.unseen.begin();
      if (job.companions.find(released.companion) == nullptr && parts_.book->find(nonce)) {
        const auto record = parts_.slurm->load_job(released.companion);
        if (!record) return;
        if (*record) companion_unseen(job, **record, nonce, released, now);
      }
      job.unseen.erase(job.unseen.begin());
    }
}

void Controller::companion_unseen(ElasticJob& job, const slurm::JobRecord& record,
                                  const std::string& nonce, const control::Released& released,
                                  double now) {
  const CompanionIdentity identity{released.companion, job.id, job.uid, nonce};
  const bool has_ended =
      record.phase == slurm::JobPhase::completing || record.phase == slurm::JobPhase::ended;
  if (!has_ended || !check_identity(record, identity).ok()) return;
  job.lost.emplace(released.companion, parts_.book->find(nonce)->offer.node);
  parts_.book->withdraw(nonce);
  saved_.issued.erase(nonce);
  job.taken_back = released.reason;
  if (released.failed) companion_failed(job, released, &record);
  job.lost.erase(released.companion);
  growth_failed(job, now);
  parts_.slurm->forget();
}

void Controller::handle(ElasticJob& job, const control::Released& released, double now) {
  // Slurm showed its end first: the agent gave it back for an order of an earlier slurmctld.
  if (job.lost.contains(released.companion) && !released.failed && !released.reason.empty() &&
      released.reason != kHasEnded) {
    job.taken_back = released.reason;
    job.lost.erase(released.companion);
    events_.event("companion-released", {{"job", job.id},
                                         {"companion", Json::object({{"id", released.companion}})},
                                         {"reason", released.reason},
                                         {"was_leaving", true}});
  }
  if (released.failed) companion_failed(job, released);
  Companion* companion = job.companions.find(released.companion);
  if (companion == nullptr) {
    if (const auto grant = parts_.book->take_named(job.id, released.companion))
      job.unseen.emplace(grant->offer.nonce, released);
    return;
  }
  if (!companion->leaving) {
    job.taken_back = released.reason;
    events_.event("companion-released", {{"job", job.id},
                                         {"companion", Json::object({{"id", companion->id}})},
                                         {"reason", released.reason}});
  }
  const bool has_failed = !companion->leaving && !companion->used;
  companion->leave(now + kReleasedKept_s, released.reason);
  job.stay(now, parts_.config.growth_interval_s);
  if (has_failed) growth_failed(job, now);
  parts_.slurm->forget();
}

void Controller::handle(ElasticJob& job, const control::Status& status, double now) {
  if ((job.state != status.state || job.epoch != status.epoch))
    events_.event("status", {{"job", job.id},
                             {"state", to_text(status.state)},
                             {"epoch", status.epoch},
                             {"workers", status.workers},
                             {"stopped_s", status.stopped_s}});
  job.state = status.state;
  job.epoch = status.epoch;
  job.ordered.heard(job.is_settled(), status.epoch);
  job.workers = status.workers;
  // The first word after a start of slurmctld may be of a change that was recorded before it.
  if (job.lost_epoch >= 0 && status.lost_epoch > job.lost_epoch && events_.may_say(job.id, now))
    events_.event(
        "change-cost",
        {{"job", job.id},
         {"epoch", status.lost_epoch},
         {"lost_s", status.lost_s},
         {"reason", fmt::format("{:.2f} s of training, against usual steps", status.lost_s)}});
  job.lost_s = status.lost_s;
  job.lost_epoch = status.lost_epoch;
  std::string no_growth = shortened(status.no_growth, kMaxNoGrowth);
  if (job.no_growth != no_growth)
    events_.event("no-growth", {{"job", job.id}, {"reason", no_growth}});
  job.no_growth = std::move(no_growth);
  if (job.program_sizes != status.sizes)
    events_.event("program-sizes", {{"job", job.id}, {"gpus", Json::array_of(status.sizes)}});
  job.program_sizes = status.sizes;
  if (job.switched != status.switched)
    events_.event("live-switch", {{"job", job.id}, {"how", status.switched}});
  job.switched = status.switched;
  if (job.plan_refused != status.plan_refused && !status.plan_refused.empty()) {
    events_.event("plan-refused", {{"job", job.id}, {"reason", status.plan_refused}});
    job.training.not_run();
  }
  job.plan_refused = status.plan_refused;
  job.steps.heard(now, status.steps, status.total_steps, job.training.step_s());
  take_start(job, status.start_s, now);
  job.training.runs(status.epoch);
  if (status.state != control::JobState::active) return;
  if (!job.trains_since) job.trains_since = now;
  for (Companion& companion : job.companions) {
    if (!companion.used && status.workers > companion.workers_before) {
      companion.used = true;
      job.failed_growths = 0;
    }
    companion.workers_before = std::min(companion.workers_before, status.workers);
  }
}

void Controller::handle(ElasticJob& job, const control::Bye& bye, double now) {
  events_.event(
      "agent-left", {{"job", job.id}, {"exit_code", bye.exit_code}},
      fmt::format("job {}: its program has ended with exit code {}", job.id, bye.exit_code));
  sessions_.close(*job.agent);
  job.agent.reset();
  job.state = control::JobState::allocated;
  parts_.book->withdraw_all(job.id);
  end_all(job, now, "the program has ended");
}

void Controller::agent_gone(ElasticJob& job, double now) {
  job.agent.reset();
  job.agent_seen = now;
  events_.event("agent-lost", {{"job", job.id}},
                fmt::format("job {}: lost the connection to its agent", job.id));
}

}  // namespace swell::controller
