// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/lending/placement_state.h"
#include "core/policy/lending/scale_tables.h"
#include "core/policy/parameters.h"
#include "core/policy/policy.h"

namespace swell::policy {

/// Lends idle GPUs where they help most: Suika, Algorithm 2. Serves basic demand first, for which
/// it reclaims the companions of least recorded benefit; then reclaims what was lent with a benefit
/// below tau; then repeatedly lends to the best pair of a job and a prefix of its GPUs in affinity
/// order. Jobs without a profile get what is left, as with fewest-first. GPUs owed to jobs that
/// consented to fewer come before all lending, whatever their benefit; if such a job has no
/// profile, lent GPUs are reclaimed for it. Thread-safe: caches only pure results.
class MarginalBenefit final : public Policy {
 public:
  struct Options {
    /// lambda_tau: expansions must have a benefit of at least tau = U^lambda_tau, where U is the
    /// share of the cluster that basic demand holds. A larger value lends more.
    double aggressiveness = 1.0;
    /// Exponent of the penalty for a job that is lent more than its share: its benefit is divided
    /// by its ratio to the mean share to this power; 0: no penalty (Suika, section 7).
    double fairness = 0.0;
    int queue_depth = kQueueDepth;            ///< pending jobs considered, from the head
    double min_growth = 0.1;                  ///< for jobs without a profile; see FewestFirst
    std::function<planner::Budget()> budget;  ///< see PolicyOptions
  };
  /// The searches for plans that one decision made.
  struct Searched {
    long max_evaluated = 0;  ///< plans that the longest of them evaluated
    bool ran_out = false;    ///< whether one of them did not end within its budget
  };
  /// Parameters of `swell sim --set`.
  static constexpr std::array<Parameter<Options>, 3> kParameters = {
      {{"aggressiveness", &Options::aggressiveness},
       {"fairness", &Options::fairness, 0, 10},
       {"min-growth", &Options::min_growth}}};
  MarginalBenefit();
  explicit MarginalBenefit(Options options);
  /// Takes other planners: `growing` for offers, `grown` for the size that a job has grown to
  /// already.
  MarginalBenefit(Options options, std::unique_ptr<const planner::Solver> growing,
                  std::unique_ptr<const planner::Solver> grown);
  Decisions decide(const ClusterView& view) const override;
  /// Does the same with a last resort for pending jobs that fit nowhere (null: there is none), and
  /// says how far it searched.
  Decisions decide(const ClusterView& view, LastResort* last_resort, Searched& searched) const;

 private:
  Options options_;
  ScaleTables growing_;  ///< tables that stop at twice the size of a job
  ScaleTables grown_;
};

}  // namespace swell::policy
