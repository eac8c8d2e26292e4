// SPDX-License-Identifier: GPL-2.0-or-later
// What agents say, and what is answered.
#include <algorithm>
#include <fmt/format.h>

#include "controller/controller.h"

namespace swell::controller {

namespace {

/// A companion that an agent does not list is given this long: its allocation may be under way on the
/// agent's former connection.
constexpr double unlisted_kept_s = 15;
/// How long a hello of a job that Slurm's records do not show running yet is kept.
constexpr double hello_kept_s = 5;
/// The longest wait after growths that failed, in growth intervals.
constexpr int most_backoff = 32;

}  // namespace

void Controller::handle_agents(double now) {
  auto waiting = std::move(waiting_hellos_);
  waiting_hellos_.clear();
  for (auto& [event, came] : waiting) {
    const auto& hello = std::get<control::Hello>(event.message);
    if (const auto found = jobs_.find(hello.job); found != jobs_.end() || now - came >= hello_kept_s)
      handle(event, hello, now);
    else
      waiting_hellos_.emplace_back(std::move(event), came);
  }

  for (control::Server::Event& event : parts_.server->take()) {
    if (event.kind == control::Server::Event::Kind::closed) {
      if (ElasticJob* job = job_of(event.connection)) agent_gone(*job, now);
      connections_.erase(event.connection);
      std::erase_if(waiting_hellos_, [&](const auto& each) { return each.first.connection == event.connection; });
      continue;
    }
    if (const auto* hello = std::get_if<control::Hello>(&event.message)) {
      if (jobs_.contains(hello->job)) {
        handle(event, *hello, now);
      } else {
        parts_.slurm->forget();  // it may have started since the last look
        waiting_hellos_.emplace_back(std::move(event), now);
      }
      continue;
    }
    ElasticJob* job = job_of(event.connection);
    if (job == nullptr) {
      refuse(event.connection, "the first message must be a hello");
      continue;
    }
    job->agent_seen = now;
    decide_due_ = true;
    std::visit(
        [&](const auto& message) {
          if constexpr (requires { this->handle(*job, message, now); }) handle(*job, message, now);
          else refuse(event.connection, "this message is not for the controller");
        },
        event.message);
  }
}

ElasticJob* Controller::job_of(control::ConnectionId connection) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return nullptr;
  const auto job = jobs_.find(found->second);
  return job != jobs_.end() && job->second.agent == connection ? &job->second : nullptr;
}

void Controller::refuse(control::ConnectionId connection, const std::string& reason) {
  parts_.server->send(connection, control::Refused{reason});
  parts_.server->close(connection);
  connections_.erase(connection);
}

std::string Controller::reason_to_refuse(const control::Server::Event& event, const control::Hello& hello,
                                         double now) const {
  if (hello.version != control::protocol_version)
    return fmt::format("this swellrun speaks protocol {}, the controller {}: install the same version of Swell on "
                       "every node", hello.version, control::protocol_version);
  const auto found = jobs_.find(hello.job);
  if (found == jobs_.end())
    return fmt::format("job {} is no running elastic job (submit it with --elastic)", hello.job);
  const ElasticJob& job = found->second;
  if (job.uid != event.uid) return fmt::format("job {} belongs to another user", hello.job);
  if (job.agent && now - job.agent_seen < parts_.config.agent_timeout_s * 4)
    return fmt::format("another swellrun manages job {} already", hello.job);
  if (hello.workers * hello.gpus_per_worker != job.basic_gpus)
    return fmt::format("{} workers of {} GPUs do not use the {} GPUs of job {}", hello.workers,
                       hello.gpus_per_worker, job.basic_gpus, hello.job);
  return {};
}

void Controller::handle(const control::Server::Event& event, const control::Hello& hello, double now) {
  if (const std::string reason = reason_to_refuse(event, hello, now); !reason.empty()) {
    events_.say(fmt::format("refusing the agent of uid {} at {}: {}", event.uid, event.peer, reason));
    refuse(event.connection, reason);
    return;
  }
  welcome(event, hello, jobs_.at(hello.job), now);
}

void Controller::welcome(const control::Server::Event& event, const control::Hello& hello, ElasticJob& job, double now) {
  if (job.agent) {  // silent for long: its machine or the network went away
    connections_.erase(*job.agent);
    parts_.server->close(*job.agent);
  }
  connections_[event.connection] = job.id;
  job.agent = event.connection;
  job.agent_seen = now;
  job.gpus_per_worker = hello.gpus_per_worker;
  job.workers = hello.workers;
  decide_due_ = true;
  events_.event("agent-connected", {{"job", job.id}, {"host", hello.host}},
                fmt::format("job {}: its agent on {} has connected", job.id, hello.host));
  parts_.server->send(event.connection,
                      control::Welcome{control::protocol_version, job.spec.text(), job.basic_gpus});

  // The two sides' lists of companions become one: what only one side knows is given up.
  auto listed = [&](JobId companion) {
    return std::find(hello.companions.begin(), hello.companions.end(), companion) != hello.companions.end();
  };
  for (Companion& companion : job.companions) {
    if (companion.leaving) {
      tell_shrink(job, companion, now);
    } else if (!listed(companion.id)) {
      companion.leaving = true;
      companion.deadline = std::max(companion.since + unlisted_kept_s, now);
      companion.reason = "the job's agent does not know it";
    }
  }
  for (JobId companion : hello.companions)
    if (job.find(companion) == nullptr) {
      Companion unknown;
      unknown.id = companion;
      unknown.deadline = now;
      unknown.reason = "it has ended";
      tell_shrink(job, unknown, now);
    }
}

void Controller::handle(ElasticJob& job, const control::GrowDone& done, double now) {
  int failed = 0;
  for (const control::OfferResult& result : done.results) {
    const std::vector<LiveGrant> outstanding = parts_.book->outstanding();
    const auto grant = std::find_if(outstanding.begin(), outstanding.end(), [&](const LiveGrant& each) {
      return each.parent == job.id && each.offer.nonce == result.nonce;
    });
    if (result.companion == 0) {
      ++failed;
      if (grant != outstanding.end()) {
        parts_.book->withdraw(result.nonce);
        saved_.issued.erase(result.nonce);
      }
      events_.event("grant-refused", {{"job", job.id}, {"reason", result.reason}},
                    fmt::format("job {} could not take up its grant: {}", job.id, result.reason));
      continue;
    }
    if (job.find(result.companion) != nullptr || grant == outstanding.end()) continue;
    Companion companion;
    companion.id = result.companion;
    companion.grant = result.nonce;
    companion.node = grant->offer.node;
    companion.gpus = {grant->offer.gpus, grant->offer.gpu_type, ""};
    companion.held = {grant->offer.gpus, grant->offer.cpus, grant->offer.memory_mib};
    companion.since = now;
    job.companions.push_back(std::move(companion));
  }
  job.failed_growths = failed == static_cast<int>(done.results.size()) ? job.failed_growths + 1 : 0;
  if (job.failed_growths > 0) {
    const int backoff = std::min(1 << std::min(job.failed_growths - 1, 10), most_backoff);
    job.grow_after = now + std::max(parts_.config.growth_interval_s, 1.0) * backoff;
  }
  parts_.slurm->forget();
}

void Controller::handle(ElasticJob& job, const control::Released& released, double now) {
  Companion* companion = job.find(released.companion);
  if (companion == nullptr) return;
  if (!companion->leaving) {
    companion->leaving = true;
    companion->reason = released.reason;
  }
  companion->deadline = std::min(companion->deadline, now + 5);  // its agent has cancelled it already
  job.grow_after = std::max(job.grow_after, now + parts_.config.growth_interval_s);
  parts_.slurm->forget();
}

void Controller::handle(ElasticJob& job, const control::Status& status, double) {
  if (job.state != status.state || job.epoch != status.epoch)
    events_.event("status", {{"job", job.id},
                             {"state", to_text(status.state)},
                             {"epoch", status.epoch},
                             {"workers", status.workers},
                             {"stopped_s", status.stopped_s}});
  job.state = status.state;
  job.epoch = status.epoch;
  job.workers = status.workers;
}

void Controller::handle(ElasticJob& job, const control::Bye& bye, double now) {
  events_.event("agent-left", {{"job", job.id}, {"exit_code", bye.exit_code}},
                fmt::format("job {}: its program has ended with exit code {}", job.id, bye.exit_code));
  connections_.erase(*job.agent);
  parts_.server->close(*job.agent);
  job.agent.reset();
  job.state = control::JobState::allocated;
  parts_.book->withdraw_all(job.id);
  take_back_all(job, now, "the program has ended");
}

void Controller::agent_gone(ElasticJob& job, double now) {
  job.agent.reset();
  job.agent_seen = now;
  events_.event("agent-lost", {{"job", job.id}}, fmt::format("job {}: lost the connection to its agent", job.id));
}

}  // namespace swell::controller
