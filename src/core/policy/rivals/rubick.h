// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/policy.h"
#include "core/policy/rivals/scaling_curve.h"

namespace swell::policy {

/// Rubick (Zhang et al., MLSys 2025), without ZeRO as Suika compares with it (section 5.1, footnote
/// 7). Each job has a resource sensitivity curve: the best symmetric 3D plan for every number of
/// GPUs. Slopes of curves, normalized by the throughput of the user's own plan, say who gets GPUs:
///  - a pending job starts with its minimum, the fewest GPUs with which it is as fast as the user's
///  plan
///    on what the user asked for; jobs with the lowest slopes are shrunk for it, never below their
///    own minimum;
///  - idle GPUs go to the steepest slope;
///  - GPUs move from the lowest slope to a steeper one.
/// A job is only reconfigured while that costs it little: (T - N d) / T above a threshold, for a
/// job that runs since T and was reconfigured N times at d each. Moves by checkpoint. Needs
/// ClusterView::machines; decides nothing without. Thread-safe: only pure results are kept.
class Rubick final : public Policy {
 public:
  struct Options {
    double reconfiguration = 0.97;  ///< k_reconfig, the threshold above
    /// k_queue, seconds: who waits longer comes first, in the queue's order, and shrinks jobs
    /// whatever reconfigurations cost these. The others start by slope.
    double queueing = 200;
    double min_gain = 0.1;  ///< a job grows for at least that share of its throughput: a restart
                            ///< for less does not pay
  };
  Rubick() : Rubick(Options{}) {}
  explicit Rubick(Options options) noexcept : options_(options) {}
  Decisions decide(const ClusterView& view) const override;
  SimulationTraits simulation_traits() const noexcept override {
    return {.role = Role::replaces,
            .sends = perf::Sends::counted,
            .redeployment = redeploy::Method::checkpoint};
  }

 private:
  Options options_;
  mutable CurveCache curves_;
};

}  // namespace swell::policy
