// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/held_companions.h"

#include <algorithm>
#include <utility>

namespace swell::launcher {

HeldCompanions::HeldCompanions(std::vector<WorkerNode> basic) : basic_(std::move(basic)) {
  for (const WorkerNode& node : basic_) next_node_ = std::max(next_node_, node.id + 1);
}

int HeldCompanions::basic_gpus() const {
  int gpus = 0;
  for (const WorkerNode& node : basic_) gpus += node.gpus;
  return gpus;
}

bool HeldCompanions::is_basic(int node) const {
  return std::any_of(basic_.begin(), basic_.end(),
                     [node](const WorkerNode& each) { return each.id == node; });
}

HeldCompanion& HeldCompanions::add(JobId job, std::vector<WorkerNode> nodes) {
  HeldCompanion made;
  made.job = job;
  made.nodes = std::move(nodes);
  for (WorkerNode& node : made.nodes) {
    node.id = next_node_++;
    node.job = job;
  }
  return held_.emplace_back(std::move(made));
}

std::vector<JobId> HeldCompanions::jobs() const {
  std::vector<JobId> jobs;
  for (const HeldCompanion& each : held_) jobs.push_back(each.job);
  return jobs;
}

HeldCompanion* HeldCompanions::find(JobId job) {
  for (HeldCompanion& each : held_)
    if (each.job == job) return &each;
  return nullptr;
}

HeldCompanion* HeldCompanions::of_node(int node) {
  for (HeldCompanion& each : held_)
    for (const WorkerNode& its : each.nodes)
      if (its.id == node) return &each;
  return nullptr;
}

std::vector<WorkerNode> HeldCompanions::nodes() const {
  std::vector<WorkerNode> nodes = basic_;
  for (const HeldCompanion& each : held_)
    nodes.insert(nodes.end(), each.nodes.begin(), each.nodes.end());
  return nodes;
}

std::vector<WorkerNode> HeldCompanions::usable() const {
  std::vector<WorkerNode> nodes = basic_;
  for (const HeldCompanion& each : held_)
    if (each.up && !each.reclaimed) nodes.insert(nodes.end(), each.nodes.begin(), each.nodes.end());
  return nodes;
}

void HeldCompanions::release(JobId job) {
  const auto found = std::find_if(held_.begin(), held_.end(),
                                  [job](const HeldCompanion& each) { return each.job == job; });
  if (found == held_.end()) return;
  releasing_.emplace(job, std::move(*found));
  held_.erase(found);
}

std::optional<HeldCompanion> HeldCompanions::released(JobId job) {
  const auto found = releasing_.find(job);
  if (found == releasing_.end()) return std::nullopt;
  HeldCompanion companion = std::move(found->second);
  releasing_.erase(found);
  return companion;
}

}  // namespace swell::launcher
