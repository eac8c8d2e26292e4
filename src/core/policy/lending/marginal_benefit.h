// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/lending/scale_tables.h"
#include "core/policy/parameters.h"
#include "core/policy/policy.h"

namespace swell::policy {

/// Lends idle GPUs where they help most: Suika, Algorithm 2. Serves basic demand first, for which
/// it reclaims the companions of least recorded benefit and, as the last resort, moves basic
/// allocations together where the cluster can; then reclaims what was lent by a benefit below tau;
/// then lends to the best pair of a job and a prefix of its GPUs in affinity order, again and
/// again. Jobs without a profile get what is left, as with fewest-first. GPUs owed to jobs that
/// consent come before all lending, whatever its benefit; lent GPUs are reclaimed for jobs without
/// a profile. Thread-safe: caches only pure results.
class MarginalBenefit final : public Policy {
 public:
  struct Options {
    /// lambda_tau: expansions must have a benefit of at least tau = U^lambda_tau, where U is the
    /// share of the cluster that basic demand holds. A larger value lends more.
    double aggressiveness = 1.0;
    /// Exponent of the penalty for a job that is lent more than its share: its benefit is divided
    /// by its ratio to the mean share to this power; 0: no penalty (Suika, section 7).
    double fairness = 0.0;
    int queue_depth = kQueueDepth;  ///< pending jobs considered, from the head
    double min_growth = 0.1;        ///< for jobs without a profile; see FewestFirst
    double search_s = 0;  ///< limit of the search for one plan, beyond which it fails; 0: none
    /// Plans that a search evaluates a second, for Decisions::search_s; 0: takes no time.
    double evaluations_per_s = 0;
    std::function<planner::Budget()> budget;  ///< see PolicyOptions
    /// SimulationTraits::slurmctld: rivals made of it run as published.
    SimulationTraits::Slurmctld slurmctld = SimulationTraits::Slurmctld::after_profile_wait;
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
  SimulationTraits simulation_traits() const noexcept override {
    return {.migrates = true, .honours_consent = true, .slurmctld = options_.slurmctld};
  }

 private:
  Options options_;
  ScaleTables growing_;  ///< stop at twice the size of a job
  ScaleTables grown_;
};

}  // namespace swell::policy
