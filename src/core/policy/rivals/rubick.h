// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/parameters.h"
#include "core/policy/rivals/scaling_curve.h"
#include "core/policy/rivals/simulated_policy.h"

namespace swell::policy {

/// Rubick (Zhang et al., MLSys 2025), without ZeRO as Suika compares with it (section 5.1, footnote
/// 7). Each job has a resource sensitivity curve: the best symmetric 3D plan for every number of
/// GPUs. Slopes of curves, normalized by the throughput of the user's own plan, decide which jobs
/// get GPUs:
///  - a pending job starts with its minimum, the smallest number of GPUs with which it is as fast
///    as the user's plan on what the user asked for; jobs with the lowest slopes are shrunk for it,
///    never below their own minimum;
///  - idle GPUs go to the steepest slope;
///  - GPUs move from the lowest slope to a steeper one.
/// A job is reconfigured only while that costs it little: (T - N d) / T is above a threshold, for a
/// job that has run for T and was reconfigured N times at d each. Moves by checkpoint. Decides
/// nothing without ClusterView::machines. Thread-safe: caches only pure results.
class Rubick final : public SimulatedPolicy {
 public:
  struct Options {
    double reconfiguration = 0.97;  ///< k_reconfig, the threshold above
    /// k_queue, seconds: jobs that wait longer come first, in the queue's order, and shrink others
    /// whatever the reconfigurations cost. Other pending jobs start by slope.
    double queueing = 200;
    /// Share of its throughput that a job must gain to grow: a restart for less does not pay.
    double min_gain = 0.1;
  };
  /// Parameters of `swell sim --set`.
  static constexpr std::array<Parameter<Options>, 3> kParameters = {
      {{"reconfiguration", &Options::reconfiguration, 0, 1},
       {"queueing", &Options::queueing},
       {"min-gain", &Options::min_gain}}};
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
