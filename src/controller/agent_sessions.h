// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/server.h"
#include "controller/elastic_job.h"

namespace swell::controller {

/// The agents' connections: which of them speaks for which job, and hellos that wait for a fresh
/// look at the queue. A connection says hello once and then speaks for that job until it is closed;
/// nothing that it sends afterwards is read.
class AgentSessions {
 public:
  using Event = control::Server::Event;
  explicit AgentSessions(control::Server& server) : server_(server) {}

  /// Returns the events since the last call, but for hellos and those that came behind them: these
  /// wait for answerable(). Sets `hello_came` where there was one.
  std::vector<Event> take(double now, bool& hello_came);
  /// Hellos, and what came behind them, in order: those of jobs in the table, and those that waited
  /// long enough. REQUIRES: the table shows what Slurm's records show now.
  std::vector<Event> answerable(const JobTable& jobs, double now);

  /// Returns why this hello is not accepted; empty if it is. `patience_s`: another agent of the job
  /// replaces one that has been silent for so long.
  std::string reason_to_refuse(const Event& event, const control::Hello& hello,
                               const JobTable& jobs, double now, double patience_s) const;
  /// From now on this connection speaks for this job.
  void speaks_for(control::ConnectionId connection, JobId job) { jobs_[connection] = job; }
  std::optional<JobId> job_of(control::ConnectionId connection) const;

  void send(control::ConnectionId connection, control::Message message) {
    server_.send(connection, std::move(message));
  }
  /// Forgets a connection that its peer has closed.
  void forget(control::ConnectionId connection) { jobs_.erase(connection); }
  /// Says why the connection is of no use, and closes it.
  void refuse(control::ConnectionId connection, const std::string& reason) {
    send(connection, control::Refused{reason});
    close(connection);
  }
  /// Closes it; nothing that it still sends is read.
  void close(control::ConnectionId connection);
  void close_all_of(JobId job);
  bool is_closed(control::ConnectionId connection) const { return closed_.contains(connection); }

 private:
  control::Server& server_;
  std::map<control::ConnectionId, JobId> jobs_;
  std::vector<std::pair<Event, double>> waiting_;  ///< with the time at which they came
  /// By this side, lately: what they said before may still arrive.
  std::set<control::ConnectionId> closed_;
};

}  // namespace swell::controller
