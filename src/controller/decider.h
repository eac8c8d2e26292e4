// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "controller/cluster_views.h"
#include "controller/loop_state.h"
#include "controller/partition_limits.h"
#include "controller/planning.h"
#include "controller/reclaimer.h"
#include "controller/scale_keeper.h"
#include "controller/state_keeper.h"
#include "core/policy/policy.h"

namespace swell::controller {

/// Has the policy decide, and carries its decisions out.
class Decider {
 public:
  /// The parts of the loop that a decision is carried out with.
  struct Parts {
    ClusterViews& views;
    Reclaimer& reclaimer;
    ScaleKeeper& scales;
    StateKeeper& state;
    std::function<std::string()> nonce;  ///< a new unguessable name for a grant
    std::function<void()> wake;          ///< a plan is made; from another thread; may be null
  };
  Decider(LoopState& loop, Parts parts);

  /// Returns whether the policy makes plans.
  bool plans() const noexcept { return planning_ != nullptr; }
  /// While `draining`, lends nothing and reclaims what is lent, each job within its grace.
  void set_draining(bool draining);
  /// Decides for the present view, unless a decision is still being made.
  void decide(double now);
  /// Carries out what the planning thread has decided meanwhile, as far as it still holds.
  void take_planned(double now) { take_planned(now, {}, false); }

  /// Returns how long the last decision took of this thread, in seconds.
  double decide_s() const noexcept { return decide_s_; }
  /// Returns how long the longest decision of the planning thread took since the last call.
  double take_max_planning_s() noexcept { return std::exchange(max_planning_s_, 0); }

 private:
  struct Planned {
    Json json;           ///< empty: none, or none that the program would read
    std::string reason;  ///< what it is expected to bring, for people
    double times = 0;    ///< the same: as many times as fast as before; 0: nothing is predicted
    /// From the decision that is carried out; null: the program makes its own plan.
    const plan::Layout* layout = nullptr;
  };
  void take_planned(double now, std::chrono::milliseconds patience, bool at_once);
  void drain(double now);
  void apply(const policy::Decisions& decisions, const policy::ClusterView& view, double now);
  void watch_deadlines(const std::vector<policy::DeadlineState>& states,
                       const policy::ClusterView& view);
  bool fit_to_partition(JobId id, std::vector<policy::Grant>& grants,
                        const policy::ClusterView& view, const PartitionLimits& limits) const;
  Planned plan_for(ElasticJob& job, const plan::Layout& layout, const policy::ClusterView& view);
  void grant(ElasticJob& job, const std::vector<policy::Grant>& grants, const Planned& plan,
             const policy::ClusterView& view, double now);
  /// Has the job run the plan on the GPUs that it has.
  void run_instead(ElasticJob& job, const Planned& plan, double now);

  LoopState& loop_;
  Parts parts_;
  std::unique_ptr<policy::Policy> policy_;
  std::unique_ptr<Planning> planning_;  ///< null: the policy makes no plans
  double decide_s_ = 0, max_planning_s_ = 0;
};

}  // namespace swell::controller
