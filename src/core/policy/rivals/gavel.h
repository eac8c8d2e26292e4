// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/parameters.h"
#include "core/policy/rivals/scaling_curve.h"
#include "core/policy/rivals/simulated_policy.h"

namespace swell::policy {

/// Gavel (Narayanan et al., OSDI 2020): each job keeps the number of GPUs that its user asked for,
/// and changes their type. A linear program gives each job shares of time on the types, by max-min
/// fairness (the heterogeneity-aware least attained service); each round runs those pairs of job
/// and type that are furthest below their share. Jobs are suspended and moved by checkpoint.
/// Decides nothing without ClusterView::machines. Thread-safe: caches only pure results.
class Gavel final : public SimulatedPolicy {
 public:
  struct Options {
    double round_s = 360;
    /// 1: the program maximizes the sum of normalized throughputs, not fairness.
    double sum = 0;
  };
  /// Parameters of `swell sim --set`.
  static constexpr std::array<Parameter<Options>, 2> kParameters = {
      {{"round", &Options::round_s, 1}, {"sum", &Options::sum, 0, 1, true}}};
  Gavel() : Gavel(Options{}) {}
  explicit Gavel(Options options) noexcept : options_(options) {}
  Decisions decide(const ClusterView& view) const override;
  SimulationTraits simulation_traits() const noexcept override {
    return {.role = Role::replaces,
            .round_s = options_.round_s,
            .sends = perf::Sends::counted,
            .redeployment = redeploy::Method::checkpoint};
  }

 private:
  Options options_;
  mutable CurveCache curves_;
};

}  // namespace swell::policy
