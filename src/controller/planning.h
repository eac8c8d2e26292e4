// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "controller/companion_set.h"
#include "controller/job_scale.h"
#include "core/executor.h"
#include "core/planner/solver.h"
#include "core/policy/policy.h"

namespace swell::controller {

/// A policy's decisions, and the view that they were made of.
struct Decided {
  policy::ClusterView view;
  policy::Decisions decisions;
  std::map<JobId, planner::NamedTable> scales;  ///< of the jobs that can be planned for
  double took_s = 0;
  std::string problem;  ///< not empty: the policy failed, and decided nothing
};

/// One thread that has a policy plan: planning may take longer than agents can wait for an answer.
/// One view at a time. Its owner calls from one thread.
class Planning {
 public:
  /// `ready` is called from the thread when a decision can be taken; may be null. The policy must
  /// outlive the object.
  Planning(const policy::Policy& policy, std::function<void()> ready);
  /// Waits for a plan that is being made.
  ~Planning();
  Planning(const Planning&) = delete;
  Planning& operator=(const Planning&) = delete;

  bool is_busy() const;
  /// REQUIRES: !is_busy().
  void start(policy::ClusterView view);
  /// The decision, once it is made; waits for it for as long.
  std::optional<Decided> take(std::chrono::milliseconds patience = {});

 private:
  void run();

  const policy::Policy& policy_;
  const JobScales scales_;
  const std::function<void()> ready_;
  mutable Mutex mutex_;
  Condition changed_;
  std::optional<policy::ClusterView> wanted_ SWELL_GUARDED_BY(mutex_);
  std::optional<Decided> made_ SWELL_GUARDED_BY(mutex_);
  bool is_busy_ SWELL_GUARDED_BY(mutex_) = false;
  bool stops_ SWELL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

/// Budget of one solve in slurmctld, from now on: a model or a profile of a user's must not keep
/// the planning thread.
planner::Budget solve_budget();

/// A thread that helps Planning's, as nice as that; null where the machine has but one core.
std::shared_ptr<Executor> planning_helpers();

/// Returns the part of `decided` that still holds in `now`, a later view: grants to jobs that hold
/// what they held and may still grow, on nodes with room; reclaims for jobs that still wait. Nodes
/// are numbered as in `now`. Plans of grants that are left out are left out too, and so are those
/// for the same GPUs of jobs that hold others now or no longer may_replan.
policy::Decisions still_good(const Decided& decided, const policy::ClusterView& now);

}  // namespace swell::controller
