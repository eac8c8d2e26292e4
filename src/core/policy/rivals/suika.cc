// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/suika.h"

#include "core/policy/rivals/defragment.h"

namespace swell::policy {

using Slurmctld = SimulationTraits::Slurmctld;

Suika::Suika(const MarginalBenefit::Options& options)
    : policy_(std::make_unique<MarginalBenefit>(options)),
      slurmctld_(Slurmctld::after_profile_wait) {}

Suika::Suika(std::unique_ptr<const MarginalBenefit> policy, Search search) noexcept
    : policy_(std::move(policy)), search_(search), slurmctld_(Slurmctld::none) {}

SimulatedDecisions Suika::simulate(const ClusterView& view) const {
  Defragmenter defragmenter;
  MarginalBenefit::Searched searched;
  SimulatedDecisions decisions{policy_->decide(view, &defragmenter, searched), {}, 0};
  decisions.migrations = defragmenter.take_migrations();
  if (search_.evaluations_per_s > 0)
    decisions.search_s =
        searched.ran_out ? search_.limit_s
                         : static_cast<double>(searched.max_evaluated) / search_.evaluations_per_s;
  return decisions;
}

}  // namespace swell::policy
