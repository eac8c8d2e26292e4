// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <vector>

#include "core/planner/island.h"
#include "core/policy/policy.h"

namespace swell::policy {

/// A pending or running job, as a policy that replaces the base scheduler sees it.
struct Contender {
  JobId id = 0;
  bool running = false;
  bool rigid = false;   ///< runs with exactly what it asks for, or not at all
  bool movable = true;  ///< false: running, and cannot be changed now (rigid, or moving already)
  int asked = 1;        ///< GPUs that the user asked for, equally many on each of `nodes` nodes
  int nodes = 1;
  int max_gpus = 1;                          ///< limit of its GPUs
  std::vector<int> sizes;                    ///< allowed numbers of GPUs, rising; empty: any
  planner::Islands held;                     ///< its GPUs; none while pending
  std::shared_ptr<const Training> training;  ///< null only for rigid jobs
  double submitted_s = 0;
  double started_s = 0;
  int reconfigurations = 0;
  double remaining_samples = -1;    ///< until its training ends; below 0: not known
  double deadline_s = kNoDeadline;  ///< time by which it should have ended
  std::vector<double> held_s;       ///< time for which it has held GPUs of each type

  bool may_have(int gpus) const noexcept;
};

/// Returns all jobs of the view: running ones, then the queue in its order. REQUIRES:
/// `view.machines` is not null.
std::vector<Contender> contenders(const ClusterView& view);

/// Writes to `decisions` that `job` should run `layout`, unless it does so already.
void decide_plan(Decisions& decisions, const Contender& job, plan::Layout layout);

/// Returns the user's plan on other GPUs; for a job whose training is not known, a plan that only
/// names the GPUs. It has no stages if `gpus` do not suffice, since TP groups do not span nodes.
plan::Layout users_plan_on(const Contender& job, planner::Islands gpus);

/// Returns the seconds that a running job loses by a checkpoint and a restart with its own plan.
double restart_s(const Contender& job, const cluster::Cluster& machines);

}  // namespace swell::policy
