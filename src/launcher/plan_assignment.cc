// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/plan_assignment.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

#include "core/count_of.h"
#include "launcher/profile_book.h"

namespace swell::launcher {

namespace {

/// The workers of one node by the GPU that each drives.
using Drivers = std::map<int, WorkerId>;

/// Returns which GPU of the node is used for each GPU that the plan names: itself if it is there,
/// else an unnamed one of the newest companion: Slurm chose other GPUs for companions than the plan
/// expected. REQUIRES: at least as many are there as are named.
std::map<int, int> stand_ins(const std::set<int>& named, const Drivers& there) {
  std::map<int, int> used;
  std::vector<int> spare;
  for (const auto& [gpu, worker] : there)
    if (named.contains(gpu)) used[gpu] = gpu;
    else spare.push_back(gpu);
  std::stable_sort(spare.begin(), spare.end(),
                   [&](int a, int b) { return there.at(a).node > there.at(b).node; });
  auto next = spare.begin();
  for (const int gpu : named)
    if (!used.contains(gpu)) used[gpu] = *next++;
  return used;
}

}  // namespace

Result<RankAssignment> seat_by_plan(const plan::Plan& plan, const std::vector<WorkerNode>& nodes,
                                    int gpus_per_worker) {
  if (gpus_per_worker != 1)
    return Error(
        fmt::format("its ranks have a GPU each, and this job's workers have {}", gpus_per_worker));
  if (plan.cp > 1 || plan.ep > 1)
    return Error(fmt::format("it has CP {} and EP {}, and programs run neither", plan.cp, plan.ep));
  std::map<std::string, Drivers> there;
  for (const WorkerNode& node : nodes)
    for (int local = 0; local < node.workers; ++local)
      there[node.name][gpus_of(node, local, 1).front()] = {node.id, local};
  std::map<std::string, std::set<int>> named;
  for (const plan::Stage& stage : plan.stages)
    for (const plan::TpGroup& group : stage.groups) {
      if (group.gpus.size() != static_cast<std::size_t>(stage.tp))
        return Error("a group of it has another number of GPUs than its TP degree");
      for (const int gpu : group.gpus)
        if (!named[group.node].insert(gpu).second)
          return Error(fmt::format("it uses GPU {} of {} twice", gpu, group.node));
    }
  for (const auto& [node, gpus] : named)
    if (const auto found = there.find(node);
        found == there.end() || found->second.size() < gpus.size())
      return Error(fmt::format("it uses {} on {}, where the job has {}",
                               count_of(gpus.size(), "GPU"), node,
                               found == there.end() ? 0 : found->second.size()));

  plan::Plan fitted = plan;
  std::map<std::string, std::map<int, int>> used;
  for (const auto& [node, gpus] : named) used[node] = stand_ins(gpus, there[node]);
  RankAssignment assignment;
  std::map<int, int> group_of, workers;
  for (plan::Stage& stage : fitted.stages)
    for (plan::TpGroup& group : stage.groups) {
      for (int& gpu : group.gpus) gpu = used[group.node][gpu];
      std::sort(group.gpus.begin(), group.gpus.end());
      for (const int gpu : group.gpus) {
        const WorkerId worker = there[group.node][gpu];
        const int number =
            group_of.try_emplace(worker.node, static_cast<int>(group_of.size())).first->second;
        assignment.seats.push_back({worker, static_cast<int>(assignment.seats.size()), number, 0});
        ++workers[worker.node];
      }
    }
  for (Seat& seat : assignment.seats) seat.local_world = workers[seat.worker.node];
  if (assignment.seats.empty()) return Error("it has no ranks");
  assignment.groups = static_cast<int>(group_of.size());
  for (const auto& [node, drivers] : there)
    assignment.idle += static_cast<int>(drivers.size() - named[node].size());
  assignment.plan = fitted.to_json().dump();
  return assignment;
}

}  // namespace swell::launcher
