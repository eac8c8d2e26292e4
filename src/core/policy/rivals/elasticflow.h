// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/parameters.h"
#include "core/policy/rivals/scaling_curve.h"
#include "core/policy/rivals/simulated_policy.h"

namespace swell::policy {

/// ElasticFlow (Gu et al., ASPLOS 2023). A job with a deadline is admitted if it can be promised a
/// share with which it and the jobs admitted before it end in time; it gets the smallest such
/// share. A job that is not admitted runs like the best-effort jobs, which have no deadline: these
/// get their smallest share while GPUs last, in the queue's order. The rest goes, share by share,
/// to the job with the largest marginal return. Shares are powers of two in a node or whole nodes,
/// placed like a buddy allocator's blocks; DP alone scales. Moves by checkpoint. Decides nothing
/// without ClusterView::machines. Thread-safe: caches only pure results.
class ElasticFlow final : public SimulatedPolicy {
 public:
  struct Options {
    double round_s = 60;
  };
  /// Parameters of `swell sim --set`.
  static constexpr std::array<Parameter<Options>, 1> kParameters = {
      {{"round", &Options::round_s, 1}}};
  ElasticFlow() : ElasticFlow(Options{}) {}
  explicit ElasticFlow(Options options) noexcept : options_(options) {}
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
