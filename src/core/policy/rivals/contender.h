// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <vector>

#include "core/planner/clump.h"
#include "core/policy/policy.h"

namespace swell::policy {

/// A job as a policy that replaces the base scheduler sees it: pending and running alike.
struct Contender {
  JobId id = 0;
  bool running = false;
  bool rigid = false;   ///< runs with what it asks for or not at all
  bool movable = true;  ///< false: runs and cannot be changed now (rigid, or moving already)
  int asked = 1;        ///< GPUs that the user asked for, on `nodes` nodes, equally many each
  int nodes = 1;
  int max_gpus = 1;                          ///< GPUs that it may have at most
  std::vector<int> sizes;                    ///< allowed numbers of GPUs, rising; empty: any
  planner::Clumps held;                      ///< its GPUs; none while pending
  std::shared_ptr<const Training> training;  ///< null only of rigid jobs
  double submitted_s = 0;
  double started_s = 0;
  int reconfigurations = 0;

  bool may_have(int gpus) const noexcept;
};

/// Running jobs first, then the queue in its order. `view.machines` must be there.
std::vector<Contender> contenders(const ClusterView& view);

/// Notes in `decisions` that `job` shall run `layout`, unless it does so already.
void decide_plan(Decisions& decisions, const Contender& job, plan::Layout layout);

/// The user's plan on other GPUs; where nothing is known of the training, only which GPUs. No
/// stages where `gpus` do not suffice: TP groups do not span nodes.
plan::Layout users_plan_on(const Contender& job, planner::Clumps gpus);

/// What stopping by checkpoint and starting again with the plan it runs costs a running job, in
/// seconds.
double restart_s(const Contender& job, const cluster::Cluster& machines);

}  // namespace swell::policy
