// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/agent_messages.h"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include "control/printable.h"
#include "controller/refusals.h"
#include "core/saturating.h"

namespace swell::controller {

namespace {

/// A companion that an agent does not list is given this long: its allocation may be under way on
/// the agent's former connection.
constexpr double kUnlistedKept_s = 15;
/// Added to a user's id for EventLog::may_say(), to tell it from the ids of jobs.
constexpr std::uint64_t kUserSources = std::uint64_t{1} << 32;
/// An agent gives way to another one of its job after it was silent for so many AgentTimeouts.
constexpr double kSilentAgentTimeouts = 4;
/// Bytes of an agent's reason against more GPUs that are kept.
constexpr std::size_t kMaxNoGrowth = 300;
/// An agent's report of its program's start is taken at most once in this time.
constexpr double kStartEvery_s = 60;
/// Bytes of a pause's parts, as an agent reports them.
constexpr std::size_t kMaxParts = 4096;

std::int64_t number_in(const Json& json, const char* key) {
  const auto number = json.integer_at(key, 0, std::numeric_limits<std::int64_t>::max());
  return number ? *number : 0;
}

double seconds_in(const Json& json, const char* key) {
  const auto seconds = json.number_at(key, 0, 1e9);
  return seconds ? *seconds : 0;
}

}  // namespace

void AgentMessages::take(double now) {
  bool hello_came = false;
  for (const control::Server::Event& event : loop_.sessions.take(now, hello_came))
    handle(event, now);
  // Its job, and the companions that it lists, may have started since the last look.
  if (hello_came) loop_.slurm.forget();
}

void AgentMessages::answer_hellos(double now) {
  for (const control::Server::Event& event : loop_.sessions.answerable(loop_.jobs, now))
    handle(event, now);
}

void AgentMessages::handle(const control::Server::Event& event, double now) {
  if (loop_.sessions.is_closed(event.connection)) return;  // by what was said just before
  ElasticJob* job = job_of(event.connection);
  if (event.kind == control::Server::Event::Kind::closed) {
    if (job != nullptr) agent_gone(*job, now);
    return loop_.sessions.forget(event.connection);
  }
  if (event.kind == control::Server::Event::Kind::dropped && job != nullptr) {
    const auto* dropped = std::get_if<control::Refused>(&event.message);
    if (dropped != nullptr && loop_.events.may_say(job->id, now))
      loop_.events.say(fmt::format("job {}: left out what its agent says: {}", job->id,
                                   control::printable(dropped->reason, kMaxNoGrowth)));
    return;
  }
  if (const auto* hello = std::get_if<control::Hello>(&event.message))
    return handle(event, *hello, now);
  if (const auto* ask = std::get_if<control::Ask>(&event.message); ask != nullptr && job == nullptr)
    return requests_.handle(event, *ask, now);
  if (job == nullptr) return refuse(event.connection, "the first message must be a hello", now);
  job->agent.hear(now);
  loop_.decision.ask();
  std::visit(
      [&](const auto& message) {
        if constexpr (requires { this->handle(*job, message, now); }) handle(*job, message, now);
        else refuse(event.connection, "this message is not for the controller", now);
      },
      event.message);
}

ElasticJob* AgentMessages::job_of(control::ConnectionId connection) {
  const std::optional<JobId> id = loop_.sessions.job_of(connection);
  const auto job = id ? loop_.jobs.find(*id) : loop_.jobs.end();
  return job != loop_.jobs.end() && job->second.agent.is(connection) ? &job->second : nullptr;
}

void AgentMessages::refuse(control::ConnectionId connection, const std::string& reason,
                           double now) {
  if (ElasticJob* job = job_of(connection)) agent_gone(*job, now);
  loop_.sessions.refuse(connection, reason);
}

void AgentMessages::handle(const control::Server::Event& event, const control::Hello& hello,
                           double now) {
  const double patience_s = kSilentAgentTimeouts * loop_.config.agent_timeout_s;
  if (const std::string reason =
          loop_.sessions.reason_to_refuse(event, hello, loop_.jobs, now, patience_s);
      !reason.empty()) {
    if (loop_.events.may_say(kUserSources + event.uid, now))
      loop_.events.say(
          fmt::format("refusing the agent of uid {} at {}: {}", event.uid, event.peer, reason));
    return refuse(event.connection, reason, now);
  }
  welcome(event, hello, loop_.jobs.at(hello.job), now);
}

void AgentMessages::welcome(const control::Server::Event& event, const control::Hello& hello,
                            ElasticJob& job, double now) {
  if (job.agent.is_connected())
    loop_.sessions.close(
        job.agent.connection());  // silent for long: its machine or the network went away
  loop_.sessions.speaks_for(event.connection, job.id);
  job.agent.connect(event.connection, now);
  job.agent_words.hello(hello, shortened(hello.no_growth, kMaxNoGrowth));
  if (hello.companions.empty())  // no growth is under way
    job.ordered.heard(true, job.agent_words.last().generation);
  job.training.told().begin_agent();
  reports_.take_sheet(job, hello.model, now);
  loop_.decision.ask();
  loop_.events.event("agent-connected", {{"job", job.id}, {"host", hello.host}},
                     fmt::format("job {}: its agent on {} has connected", job.id, hello.host));
  loop_.sessions.send(event.connection,
                      control::Welcome{control::kProtocolVersion, job.spec.text()});

  // The two sides' lists of companions become one: what only one side knows is given up.
  auto listed = [&](JobId companion) {
    return std::find(hello.companions.begin(), hello.companions.end(), companion) !=
           hello.companions.end();
  };
  for (Companion& companion : job.companions) {
    if (companion.is_leaving()) {
      reclaimer_.tell(job, companion, now);
    } else if (!listed(companion.id)) {
      reclaimer_.leave(job, companion, now, "agent", "the job's agent does not know it",
                       std::max(companion.since + kUnlistedKept_s, now));
    }
  }
  for (JobId companion : hello.companions)
    if (job.companions.find(companion) == nullptr) reclaimer_.tell_ended(job, companion);
}

void AgentMessages::handle(ElasticJob& job, const control::GrowDone& done, double now) {
  bool has_failed = false;
  for (const control::OfferResult& result : done.results) {
    // Where it says that there is a companion, Slurm's records will show it, or the grant expires:
    // an agent may name any job.
    if (result.companion != 0) {
      loop_.book.name_companion(result.nonce, job.id, result.companion);
      continue;
    }
    const auto grant = loop_.book.find(result.nonce);
    const auto given_up =
        std::find_if(job.companions.begin(), job.companions.end(), [&](const Companion& companion) {
          return companion.grant == result.nonce && !companion.is_leaving();
        });
    if (given_up != job.companions.end()) {  // Slurm gave it, and the agent does not want it
      reclaimer_.given_back(*given_up, now, result.reason);
      job.lending.take_back(result.reason);
      has_failed = true;
    } else if (!grant || grant->parent != job.id) {
      continue;
    }
    loop_.book.withdraw(result.nonce);
    if (given_up == job.companions.end()) loop_.saved.issued.erase(result.nonce);
    job.offers.refuse(refusal_kind(result.reason));
    loop_.events.event(
        "grant-refused",
        {{"job", job.id}, {"kind", job.offers.refused().kind}, {"reason", result.reason}},
        fmt::format("job {} could not take up its grant: {}", job.id, result.reason));
  }
  has_failed = has_failed || (job.offers.is_open() && !loop_.book.has_grant_of(job.id));
  if (has_failed) job.growth_failed(now, loop_.config.growth_interval_s);
  loop_.slurm.forget();
}

/// Takes the job's word of how long its program's start took: no longer than the job has run, and
/// not often, since it is kept in the state file.
void AgentMessages::take_start(ElasticJob& job, double start_s, double now) {
  const auto has_run_s = static_cast<double>(loop_.snapshot.taken - job.started);
  if (start_s <= 0 || start_s > has_run_s) return;
  const std::optional<double> taken = job.agent_words.start_taken();
  if (taken && now < *taken + kStartEvery_s) return;
  if (!job.pauses.started(start_s)) return;
  job.agent_words.take_start(now);
  loop_.remember(job);
}

/// Counts a failure of a companion, which its agent reports, against its node. Each companion
/// counts once; one that was reclaimed does not count.
void AgentMessages::companion_failed(ElasticJob& job, const control::Released& released) {
  std::string node = job.gone.take_lost(released.companion);
  if (Companion* companion = job.companions.find(released.companion)) {
    if (companion->is_leaving() && !companion->departure().is_lost()) return;
    if (std::exchange(companion->failed, true)) return;
    node = companion->node;
  }
  if (node.empty()) return;
  // Slurm preempts at once where there is no GraceTime: the agent sees that its workers are killed.
  const auto loaded = loop_.slurm.load_job(released.companion);
  if (loaded && *loaded && (*loaded)->was_preempted) return;
  failed_on(node, job, released);
}

void AgentMessages::failed_on(const std::string& node, const ElasticJob& job,
                              const control::Released& released) {
  // Without a worker the job's own options may be why, until it has trained on lent GPUs with them.
  const bool may_be_the_node = released.started || job.offers.were_used();
  const std::string withheld =
      may_be_the_node ? loop_.saved.health.failed(
                            node, job.id, job.uid, loop_.snapshot.taken,
                            loop_.snapshot.nodes.size(), loop_.config.withhold_s,
                            released.started ? NodeHealth::Stage::run : NodeHealth::Stage::launch)
                      : std::string();
  loop_.events.event("companion-failed",
                     {{"job", job.id},
                      {"companion", Json::object({{"id", released.companion}, {"node", node}})},
                      {"reason", released.reason}});
  if (withheld.empty()) return;
  loop_.decision.ask();
  loop_.events.event("node-withheld", {{"job", job.id}, {"node", node}, {"reason", withheld}},
                     withheld);
}

void AgentMessages::settle_unseen(double now) {
  for (auto& [id, job] : loop_.jobs)
    while (!job.gone.unseen().empty()) {
      const auto& [nonce, released] = *job.gone.unseen().begin();
      if (job.companions.find(released.companion) == nullptr && loop_.book.find(nonce)) {
        const auto record = loop_.slurm.load_job(released.companion);
        if (!record) return;
        if (*record) companion_unseen(job, **record, nonce, released, now);
      }
      job.gone.drop_first_unseen();
    }
}

void AgentMessages::companion_unseen(ElasticJob& job, const slurm::JobRecord& record,
                                     const std::string& nonce, const control::Released& released,
                                     double now) {
  const CompanionIdentity identity{released.companion, job.id, job.uid, nonce};
  const bool has_ended =
      record.phase == slurm::JobPhase::completing || record.phase == slurm::JobPhase::ended;
  if (!has_ended || !check_identity(record, identity).ok()) return;
  std::string node = job.gone.take_lost(released.companion);
  if (node.empty()) node = loop_.book.find(nonce)->offer.node;
  loop_.book.withdraw(nonce);
  loop_.saved.issued.erase(nonce);
  job.lending.take_back(released.reason);
  if (released.failed && !record.was_preempted) failed_on(node, job, released);
  job.growth_failed(now, loop_.config.growth_interval_s);
  loop_.slurm.forget();
}

void AgentMessages::handle(ElasticJob& job, const control::Released& released, double now) {
  // Slurm showed its end first: the agent gave it back for an order of an earlier slurmctld.
  if (job.gone.was_lost(released.companion) && !released.failed && !released.reason.empty() &&
      released.reason != kHasEnded) {
    job.lending.take_back(released.reason);
    job.gone.take_lost(released.companion);
    loop_.events.event("companion-released",
                       {{"job", job.id},
                        {"companion", Json::object({{"id", released.companion}})},
                        {"reason", released.reason},
                        {"was_leaving", true}});
  }
  if (released.failed) companion_failed(job, released);
  Companion* companion = job.companions.find(released.companion);
  if (companion == nullptr) {
    if (const auto grant = loop_.book.take_named(job.id, released.companion))
      job.gone.keep_unseen(grant->offer.nonce, released);
    return;
  }
  if (!companion->is_leaving()) {
    job.lending.take_back(released.reason);
    loop_.events.event("companion-released", {{"job", job.id},
                                              {"companion", Json::object({{"id", companion->id}})},
                                              {"reason", released.reason}});
  }
  const bool has_failed = !companion->is_leaving() && !companion->used;
  reclaimer_.given_back(*companion, now, released.reason);
  job.stay(now, loop_.config.growth_interval_s);
  if (has_failed) job.growth_failed(now, loop_.config.growth_interval_s);
  loop_.slurm.forget();
}

void AgentMessages::handle(ElasticJob& job, const control::Status& status, double now) {
  const control::Status& before = job.agent_words.last();
  if (before.state != status.state || before.generation != status.generation)
    loop_.events.event("status", {{"job", job.id},
                                  {"state", to_text(status.state)},
                                  {"generation", status.generation},
                                  {"workers", status.workers},
                                  {"stopped_s", status.stopped_s}});
  // The first word after a start of slurmctld may be of a change that was recorded before it.
  if (before.lost_generation >= 0 && status.lost_generation > before.lost_generation &&
      loop_.events.may_say(job.id, now))
    loop_.events.event(
        "change-cost",
        {{"job", job.id},
         {"generation", status.lost_generation},
         {"lost_s", status.lost_s},
         {"reason", fmt::format("{:.2f} s of training, against usual steps", status.lost_s)}});
  // A stop alone leaves out the step that all agree on, and slow first steps.
  if (job.ordered.take_lost(status.lost_generation, status.lost_s, now))
    if (const auto change = job.pauses.lost(status.lost_s)) {
      loop_.saved.pauses.changed(static_cast<std::int64_t>(job.uid), *job.pauses.last_way(),
                                 change->cost, change->at);
      loop_.remember(job);
    }
  control::Status kept = status;
  kept.no_growth = shortened(status.no_growth, kMaxNoGrowth);
  kept.not_requeued = shortened(status.not_requeued, kMaxNoGrowth);
  if (before.no_growth != kept.no_growth)
    loop_.events.event("no-growth", {{"job", job.id}, {"reason", kept.no_growth}});
  if (before.sizes != status.sizes)
    loop_.events.event("program-sizes", {{"job", job.id}, {"gpus", array_of(status.sizes)}});
  if (before.switched != status.switched)
    loop_.events.event("live-switch", {{"job", job.id}, {"how", status.switched}});
  if (before.plan_refused != status.plan_refused && !status.plan_refused.empty()) {
    loop_.events.event("plan-refused", {{"job", job.id}, {"reason", status.plan_refused}});
    job.training.told().refuse();
  }
  job.agent_words.hear(std::move(kept), now, job.training.step_s());
  job.ordered.heard(job.agent_words.is_settled(), status.generation);
  take_start(job, status.start_s, now);
  job.training.told().run(status.generation);
  if (status.state != control::JobState::active) return;
  for (Companion& companion : job.companions) {
    if (!companion.used && status.workers > companion.workers_before) {
      companion.used = true;
      job.offers.used();
    }
    companion.workers_before = std::min(companion.workers_before, status.workers);
  }
}

void AgentMessages::handle(ElasticJob& job, const control::Bye& bye, double now) {
  loop_.events.event(
      "agent-left", {{"job", job.id}, {"exit_code", bye.exit_code}},
      fmt::format("job {}: its program has ended with exit code {}", job.id, bye.exit_code));
  loop_.sessions.close(job.agent.connection());
  job.agent.lose(now);
  job.agent_words.end();
  if (const auto move = loop_.moves.find(job.id);
      move != loop_.moves.end() && move->second.phase != TypeMove::Phase::requeued) {
    loop_.events.event("type-move-called-off",
                       {{"job", job.id},
                        {"from", move->second.from},
                        {"to", move->second.to},
                        {"reason", "its program has ended"}},
                       fmt::format("job {} does not move from {} to {}: its program has ended",
                                   job.id, move->second.from, move->second.to));
    loop_.moves.erase(move);
  }
  loop_.book.withdraw_all(job.id);
  reclaimer_.end_all(job, now, "the program has ended");
}

void AgentMessages::agent_gone(ElasticJob& job, double now) {
  job.agent.lose(now);
  loop_.events.event("agent-lost", {{"job", job.id}},
                     fmt::format("job {}: lost the connection to its agent", job.id));
}

void AgentMessages::handle(ElasticJob& job, const control::Switched& switched, double now) {
  if (!loop_.events.may_say(job.id, now)) return;
  const Json parts = switched.parts.dump().size() <= kMaxParts ? switched.parts : Json::object();
  const bool is_live = switched.mode == "live";
  loop_.events.event("pause", {{"job", job.id},
                               {"mode", is_live ? "live" : "restart"},
                               {"stopped_s", switched.stopped_s},
                               {"workers", switched.workers},
                               {"parts", parts}});
  if (const auto seen_s = job.ordered.take_word(switched.generation, switched.stopped_s, now)) {
    const auto way = is_live ? redeploy::Measured::live : redeploy::Measured::restart;
    const double delay_s =
        is_live ? seconds_in(parts, "prepare_s") + seconds_in(parts, "wait_s") : 0;
    const redeploy::Cost cost{std::min(delay_s, *seen_s - switched.stopped_s), switched.stopped_s};
    const auto at = static_cast<double>(loop_.snapshot.taken);
    job.pauses.changed(way, cost, at);
    loop_.saved.pauses.changed(static_cast<std::int64_t>(job.uid), way, cost, at);
    loop_.remember(job);
  }
  if (loop_.history == nullptr) return;
  history::Pause pause;
  pause.job = job.id;
  pause.is_live = is_live;
  pause.generation = switched.generation;
  pause.workers = switched.workers;
  pause.stopped_s = switched.stopped_s;
  pause.prepare_s = seconds_in(parts, "prepare_s");
  pause.wait_s = seconds_in(parts, "wait_s");
  pause.quiesce_s = seconds_in(parts, "quiesce_s");
  pause.move_s = seconds_in(parts, "move_s");
  pause.commit_s = seconds_in(parts, "commit_s");
  if (const Json bytes = parts.at("bytes"); is_object(bytes)) {
    for (const auto& [path, count] : members(bytes))
      pause.bytes_moved = saturating_sum(pause.bytes_moved, number_in(bytes, path.c_str()));
    pause.bytes_by_path = bytes.dump();
  }
  loop_.history->add(std::move(pause));
}

void AgentMessages::handle(ElasticJob& job, const control::Profile& profile, double now) {
  reports_.receive(job, profile, now);
}

}  // namespace swell::controller
