// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "control/server.h"
#include "launcher/rank_assignment.h"

namespace swell::launcher {

/// The shims that are connected, and the nodes on which they may be. Each worker has one connection
/// at most, and each connection belongs to one worker.
class WorkerConnections {
 public:
  using Connection = control::ConnectionId;

  /// Adds the nodes of an allocation whose shims are about to connect.
  void add_nodes(const std::vector<WorkerNode>& nodes);
  bool knows(int node) const { return nodes_.contains(node); }
  /// REQUIRES: it knows the node.
  const WorkerNode& node(int id) const { return nodes_.at(id); }
  /// Returns all nodes so far, by id, also those of companions that have left.
  const std::map<int, WorkerNode>& nodes() const noexcept { return nodes_; }

  std::optional<WorkerId> worker(Connection connection) const;
  std::optional<Connection> connection(WorkerId worker) const;
  /// Returns whether the worker has another connection from a task of the same Slurm step: then two
  /// tasks have one number. REQUIRES: it knows the worker's node.
  bool is_taken(WorkerId worker, Connection connection, JobId step) const;
  /// Gives the worker this connection. @return its connection before, if that was another one: a
  /// step that was launched again has replaced its worker. REQUIRES: it knows the node.
  std::optional<Connection> connect(WorkerId worker, Connection connection, JobId step);
  /// Returns the worker whose connection it was.
  std::optional<WorkerId> disconnect(Connection connection);
  /// Forgets the connections of an allocation's workers, and returns them.
  std::vector<std::pair<WorkerId, Connection>> disconnect_job(JobId job);
  /// Forgets all connections, and returns them.
  std::vector<Connection> disconnect_all();

 private:
  std::map<int, WorkerNode> nodes_;
  std::map<WorkerId, Connection> connections_;
  std::map<Connection, WorkerId> workers_;
  /// The allocation and Slurm's number of the step to which each worker's task belongs.
  std::map<WorkerId, std::pair<JobId, JobId>> steps_;
};

}  // namespace swell::launcher
