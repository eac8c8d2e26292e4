// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/agent_sessions.h"

#include "core/count_of.h"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>

namespace swell::controller {

namespace {

/// How long a hello of a job that Slurm's records do not show running yet is kept.
constexpr double kHelloKept_s = 5;
/// Limit of messages kept of one connection before its hello is answered.
constexpr std::ptrdiff_t kMaxWaitingMessages = 16;
/// The same for all connections of a user: hellos beyond are answered with what is known now.
constexpr std::ptrdiff_t kMaxWaitingOfUser = 256;
/// Closed connections that are remembered. Ids rise, so the oldest are the first.
constexpr std::size_t kMaxClosed = 4096;

}  // namespace

std::vector<AgentSessions::Event> AgentSessions::take(double now, bool& hello_came) {
  std::vector<Event> ready;
  // Sets, as one user's flood may be tens of thousands of messages.
  std::set<control::ConnectionId> waiting, gone;
  for (const auto& [event, came] : waiting_) waiting.insert(event.connection);
  for (Event& event : server_.take()) {
    if (closed_.contains(event.connection)) continue;
    if (event.kind == Event::Kind::closed) {
      gone.insert(event.connection);
      ready.push_back(std::move(event));
    } else if (std::holds_alternative<control::Hello>(event.message) ||
               waiting.contains(event.connection)) {
      hello_came = true;
      waiting.insert(event.connection);
      waiting_.emplace_back(std::move(event), now);
    } else {
      ready.push_back(std::move(event));
    }
  }
  if (!gone.empty())
    std::erase_if(waiting_, [&](const auto& each) { return gone.contains(each.first.connection); });
  return ready;
}

std::vector<AgentSessions::Event> AgentSessions::answerable(const JobTable& jobs, double now) {
  std::vector<Event> ready;
  std::map<control::ConnectionId, std::ptrdiff_t> kept;
  std::map<uid_t, std::ptrdiff_t> kept_of;
  for (auto& [event, came] : std::exchange(waiting_, {})) {
    const auto* hello = std::get_if<control::Hello>(&event.message);
    const bool early = hello != nullptr && !jobs.contains(hello->job) && now - came < kHelloKept_s;
    if ((kept.contains(event.connection) || early) &&
        kept[event.connection] < kMaxWaitingMessages && kept_of[event.uid] < kMaxWaitingOfUser) {
      ++kept[event.connection];
      ++kept_of[event.uid];
      waiting_.emplace_back(std::move(event), came);
    } else if (!closed_.contains(event.connection)) {
      ready.push_back(std::move(event));
    }
  }
  return ready;
}

std::string AgentSessions::reason_to_refuse(const Event& event, const control::Hello& hello,
                                            const JobTable& jobs, double now,
                                            double patience_s) const {
  if (hello.version != control::kProtocolVersion)
    return fmt::format(
        "this swellrun speaks protocol {}, the controller {}: install the same version of Swell on "
        "every node",
        hello.version, control::kProtocolVersion);
  if (jobs_.contains(event.connection))
    return "a connection speaks for one job, and says hello once";
  const auto found = jobs.find(hello.job);
  if (found == jobs.end())
    return fmt::format("job {} is not a running elastic job (submit it with --elastic)", hello.job);
  const ElasticJob& job = found->second;
  if (job.uid != event.uid) return fmt::format("job {} belongs to another user", hello.job);
  if (job.agent.is_connected() && now - job.agent.seen() < patience_s)
    return fmt::format("another swellrun manages job {} already", hello.job);
  if (std::int64_t{hello.workers} * hello.gpus_per_worker != job.basic_gpus)
    return fmt::format("{} of {} {} not use the {} of job {}", count_of(hello.workers, "worker"),
                       count_of(hello.gpus_per_worker, "GPU"), hello.workers == 1 ? "does" : "do",
                       count_of(job.basic_gpus, "GPU"), hello.job);
  return {};
}

std::optional<JobId> AgentSessions::job_of(control::ConnectionId connection) const {
  const auto found = jobs_.find(connection);
  return found != jobs_.end() ? std::optional<JobId>(found->second) : std::nullopt;
}

void AgentSessions::close(control::ConnectionId connection) {
  server_.close(connection);
  jobs_.erase(connection);
  std::erase_if(waiting_, [&](const auto& each) { return each.first.connection == connection; });
  closed_.insert(connection);
  if (closed_.size() > kMaxClosed) closed_.erase(closed_.begin());
}

void AgentSessions::close_all_of(JobId job) {
  std::vector<control::ConnectionId> connections;
  for (const auto& [connection, its_job] : jobs_)
    if (its_job == job) connections.push_back(connection);
  for (const control::ConnectionId connection : connections) close(connection);
}

}  // namespace swell::controller
