// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>

#include "core/policy/lending/marginal_benefit.h"
#include "core/policy/rivals/simulated_policy.h"

namespace swell::policy {

/// Marginal-benefit as Suika runs it: as the last resort it moves basic allocations together for a
/// pending job (Defragmenter), and a search for plans may take simulated time. Thread-safe.
class Suika final : public SimulatedPolicy {
 public:
  /// Speed of the search for plans.
  struct Search {
    double limit_s = 0;            ///< time limit of the search for one plan
    double evaluations_per_s = 0;  ///< plans evaluated in a second; 0: the search takes no time
  };
  Suika() : Suika(MarginalBenefit::Options{}) {}
  explicit Suika(const MarginalBenefit::Options& options);
  /// Makes a rival of `policy`, which has its own planners and its own time limits in place of
  /// slurmctld's.
  Suika(std::unique_ptr<const MarginalBenefit> policy, Search search) noexcept;
  Decisions decide(const ClusterView& view) const override { return simulate(view); }
  SimulatedDecisions simulate(const ClusterView& view) const override;
  SimulationTraits simulation_traits() const noexcept override {
    return {.honours_consent = true, .slurmctld = slurmctld_};
  }

 private:
  std::unique_ptr<const MarginalBenefit> policy_;
  Search search_;
  SimulationTraits::Slurmctld slurmctld_;
};

}  // namespace swell::policy
