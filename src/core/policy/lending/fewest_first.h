// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/parameters.h"
#include "core/policy/policy.h"

namespace swell::policy {

/// Lends idle GPUs to the elastic job that has the fewest, one worker at a time, until each has its
/// maximum or nothing is idle; reclaims from the job that has the most if a pending job could start
/// on idle and lent GPUs together. GPUs owed to jobs that consented to fewer come before other
/// lending, and GPUs lent to others are reclaimed for them. Thread-safe: no state.
class FewestFirst final : public Policy {
 public:
  struct Options {
    /// Smallest growth of a job, as a share of its total: each growth stops the training for a
    /// while.
    double min_growth = 0.1;
    /// Number of pending jobs considered, from the head of the queue. Jobs behind these are served
    /// by Slurm's own preemption.
    int queue_depth = kQueueDepth;
  };
  /// Parameters of `swell sim --set`.
  static constexpr std::array<Parameter<Options>, 1> kParameters = {
      {{"min-growth", &Options::min_growth}}};
  FewestFirst() : FewestFirst(Options{}) {}
  explicit FewestFirst(Options options) noexcept : options_(options) {}
  Decisions decide(const ClusterView& view) const override;

 private:
  Options options_;
};

}  // namespace swell::policy
