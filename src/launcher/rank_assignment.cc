// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/rank_assignment.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/count_of.h"

namespace swell::launcher {

RankAssignment seat_workers(const std::vector<WorkerNode>& nodes, int gpus_per_worker,
                            int max_gpus) {
  RankAssignment assignment;
  int gpus = 0, workers = 0;
  for (const WorkerNode& node : nodes) gpus += node.gpus, workers += node.workers;
  // Workers that share GPUs unevenly run in this number only: max_gpus is then never below `gpus`.
  int left = max_gpus >= gpus ? workers : max_gpus / std::max(1, gpus_per_worker);
  for (const WorkerNode& node : nodes) {
    const int here = std::min(node.workers, left);
    if (here <= 0) continue;
    left -= here;
    for (int local = 0; local < here; ++local)
      assignment.seats.push_back(
          {{node.id, local}, static_cast<int>(assignment.seats.size()), assignment.groups, here});
    ++assignment.groups;
  }
  return assignment;
}

int allowed_gpus(int there, int basic, const std::vector<int>& sizes) {
  if (sizes.empty()) return there;
  int best = basic;
  for (const int size : sizes)
    if (size <= there) best = std::max(best, size);
  return best;
}

Environment torch_environment(const RankAssignment& assignment, const Seat& seat,
                              const std::string& master_address, int master_port) {
  return {{"RANK", std::to_string(seat.rank)},
          {"LOCAL_RANK", std::to_string(seat.worker.local)},
          {"WORLD_SIZE", std::to_string(assignment.seats.size())},
          {"LOCAL_WORLD_SIZE", std::to_string(seat.local_world)},
          {"NODE_RANK", std::to_string(seat.group)},
          {"GROUP_RANK", std::to_string(seat.group)},
          {"GROUP_WORLD_SIZE", std::to_string(assignment.groups)},
          {"ROLE_RANK", std::to_string(seat.rank)},
          {"ROLE_WORLD_SIZE", std::to_string(assignment.seats.size())},
          {"MASTER_ADDR", master_address},
          {"MASTER_PORT", std::to_string(master_port)}};
}

std::string describe(const std::vector<WorkerNode>& nodes) {
  std::string text;
  for (const WorkerNode& node : nodes)
    text += text.empty() ? fmt::format("{} on {}", count_of(node.gpus, "GPU"), node.name)
                         : fmt::format(", {} on {}", node.gpus, node.name);
  return text;
}

}  // namespace swell::launcher
