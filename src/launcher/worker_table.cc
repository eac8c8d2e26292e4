// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/worker_table.h"

#include <algorithm>

namespace swell::launcher {

const WorkerState* WorkerTable::find(WorkerId id) const {
  const auto found = workers_.find(id);
  return found == workers_.end() ? nullptr : &found->second;
}

void WorkerTable::forget(const std::vector<WorkerNode>& nodes) {
  for (const WorkerNode& node : nodes)
    for (int local = 0; local < node.workers; ++local) workers_.erase({node.id, local});
}

std::vector<WorkerId> WorkerTable::running() const {
  std::vector<WorkerId> found;
  for (const auto& [id, worker] : workers_)
    if (worker.running) found.push_back(id);
  return found;
}

bool WorkerTable::train_on(const std::vector<WorkerNode>& nodes) const {
  for (const auto& [id, worker] : workers_)
    for (const WorkerNode& node : nodes)
      if (id.node == node.id && worker.running) return true;
  return false;
}

bool WorkerTable::run_on(const std::vector<WorkerNode>& nodes) const {
  if (train_on(nodes)) return true;
  for (const auto& [program, by] : others_)
    for (const WorkerNode& node : nodes)
      if (program.second.node == node.id) return true;
  return false;
}

std::size_t WorkerTable::deaf(int generation) const {
  std::size_t deaf = 0;
  for (const auto& [id, worker] : workers_) deaf += worker.running && worker.listens != generation;
  return deaf;
}

bool WorkerTable::one_listened(double seconds, int generation, double since, double now) const {
  return std::any_of(workers_.begin(), workers_.end(), [&](const auto& each) {
    const WorkerState& worker = each.second;
    return worker.running && worker.listens == generation &&
           now - std::max(since, worker.listens_since) >= seconds;
  });
}

}  // namespace swell::launcher
