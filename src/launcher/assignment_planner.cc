// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/assignment_planner.h"

#include <algorithm>

#include "control/elastic_spec.h"
#include "launcher/plan_assignment.h"

namespace swell::launcher {

bool AssignmentPlanner::set_program_sizes(std::vector<int> sizes) {
  return std::exchange(program_sizes_, sizes) != sizes;
}

std::string AssignmentPlanner::want(const Json& json) {
  wanted_.reset();
  refused_.clear();
  if (!is_object(json)) return {};
  auto plan = plan::Plan::from_json(json);
  if (!plan) return plan.error().message();
  wanted_ = std::move(*plan);
  return {};
}

std::string AssignmentPlanner::drop_unfit(const RankAssignment& next, const RunState& run) {
  if (!wanted_ || !next.plan.empty()) return {};
  const auto assignment =
      seat_by_plan(*wanted_, run.companions.usable(), settings_.gpus_per_worker);
  refused_ = assignment ? "it is not of an allowed size" : assignment.error().message();
  wanted_.reset();
  return refused_;
}

RankAssignment AssignmentPlanner::next(const RunState& run) const {
  const int basic = run.companions.basic_gpus();
  const std::vector<WorkerNode> nodes = run.companions.usable();
  int there = 0;
  for (const WorkerNode& node : nodes) there += node.gpus;
  const int allowed = allowed_gpus(
      there, basic, control::common_sizes(asked_sizes(basic, there), program_sizes_, basic));
  if (wanted_ && (wanted_->gpu_count() == basic || runs_on(basic, wanted_->gpu_count())))
    if (auto assignment = seat_by_plan(*wanted_, nodes, settings_.gpus_per_worker))
      return *assignment;
  // The running plan is still good if no worker comes or goes.
  if (!run.assignment.plan.empty())
    if (const auto running = plan::Plan::parse(run.assignment.plan); running)
      if (auto assignment = seat_by_plan(*running, nodes, settings_.gpus_per_worker);
          assignment && assignment->idle == run.assignment.idle)
        return *assignment;
  return seat_workers(nodes, settings_.gpus_per_worker, allowed);
}

/// Returns the totals up to `limit` that the user asked for; empty: any.
std::vector<int> AssignmentPlanner::asked_sizes(int basic, int limit) const {
  control::ElasticSpec spec;
  spec.sizes = settings_.sizes;
  spec.step = settings_.step;
  return spec.totals(basic, limit);
}

/// Returns whether the program is known to run on so many GPUs in all.
bool AssignmentPlanner::runs_on(int basic, int gpus) const {
  const auto allow = [gpus](const std::vector<int>& sizes) {
    return sizes.empty() || std::find(sizes.begin(), sizes.end(), gpus) != sizes.end();
  };
  return allow(asked_sizes(basic, gpus)) && allow(program_sizes_);
}

}  // namespace swell::launcher
