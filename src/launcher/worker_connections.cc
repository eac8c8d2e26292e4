// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/worker_connections.h"

namespace swell::launcher {

void WorkerConnections::add_nodes(const std::vector<WorkerNode>& nodes) {
  for (const WorkerNode& node : nodes) nodes_[node.id] = node;
}

std::optional<WorkerId> WorkerConnections::worker(Connection connection) const {
  const auto found = workers_.find(connection);
  return found != workers_.end() ? std::optional(found->second) : std::nullopt;
}

std::optional<WorkerConnections::Connection> WorkerConnections::connection(WorkerId worker) const {
  const auto found = connections_.find(worker);
  return found != connections_.end() ? std::optional(found->second) : std::nullopt;
}

bool WorkerConnections::is_taken(WorkerId worker, Connection connection, JobId step) const {
  const auto before = connections_.find(worker);
  if (before == connections_.end() || before->second == connection) return false;
  return steps_.at(worker) == std::pair(nodes_.at(worker.node).job, step);
}

std::optional<WorkerConnections::Connection> WorkerConnections::connect(WorkerId worker,
                                                                        Connection connection,
                                                                        JobId step) {
  std::optional<Connection> replaced;
  if (const auto before = connections_.find(worker);
      before != connections_.end() && before->second != connection) {
    replaced = before->second;
    workers_.erase(before->second);
  }
  workers_[connection] = worker;
  connections_[worker] = connection;
  steps_[worker] = {nodes_.at(worker.node).job, step};
  return replaced;
}

std::optional<WorkerId> WorkerConnections::disconnect(Connection connection) {
  const auto known = workers_.find(connection);
  if (known == workers_.end()) return std::nullopt;
  const WorkerId worker = known->second;
  workers_.erase(known);
  connections_.erase(worker);
  return worker;
}

std::vector<std::pair<WorkerId, WorkerConnections::Connection>> WorkerConnections::disconnect_job(
    JobId job) {
  std::vector<std::pair<WorkerId, Connection>> gone;
  for (const auto& [worker, connection] : connections_)
    if (nodes_.at(worker.node).job == job) gone.emplace_back(worker, connection);
  for (const auto& [worker, connection] : gone) {
    workers_.erase(connection);
    connections_.erase(worker);
  }
  return gone;
}

std::vector<WorkerConnections::Connection> WorkerConnections::disconnect_all() {
  std::vector<Connection> gone;
  for (const auto& [worker, connection] : connections_) gone.push_back(connection);
  connections_.clear();
  workers_.clear();
  return gone;
}

}  // namespace swell::launcher
