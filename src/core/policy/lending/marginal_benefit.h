// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/lending/scale_tables.h"
#include "core/policy/policy.h"

namespace swell::policy {

/// Lends idle GPUs where they help most: Suika, Algorithm 2. Basic demand comes first, and reclaims
/// what benefits least; what benefits less than tau is reclaimed too; then the best pair of a job
/// and a prefix of its GPUs in affinity order, again and again. Jobs without a profile get what is
/// left, as fewest-first would. Thread-safe: remembers pure results alone.
class MarginalBenefit final : public Policy {
 public:
  struct Options {
    /// lambda_tau: expansions must have a benefit of at least tau, the share of the cluster that
    /// basic demand holds, to this power. The larger, the more is lent.
    double aggressiveness = 1.0;
    /// The benefit of a job that is lent more than its share of what is lent counts less, by the
    /// ratio to this power; 0: it does not (Suika, section 7).
    double fairness = 0.0;
    int queue_depth = 1000;   ///< pending jobs looked at, from the head
    double min_growth = 0.1;  ///< of jobs without a profile; see FewestFirst
    double search_s = 0;  ///< a search for one plan that takes longer counts as failed; 0: no limit
    double evaluations_per_s = 0;  ///< turns a solver's count into time; 0: takes no time
  };
  MarginalBenefit();
  explicit MarginalBenefit(Options options);
  /// With another planner for growing; `grown`: for what a job has grown to already.
  MarginalBenefit(Options options, std::unique_ptr<const planner::Solver> growing,
                  std::unique_ptr<const planner::Solver> grown);
  Decisions decide(const ClusterView& view) const override;

 private:
  Options options_;
  ScaleTables growing_;  ///< stops where a job has doubled
  ScaleTables grown_;
};

}  // namespace swell::policy
