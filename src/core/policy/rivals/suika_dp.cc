// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/suika_dp.h"

#include "core/planner/symmetric.h"

namespace swell::policy {

std::unique_ptr<Policy> make_suika_dp(MarginalBenefit::Options options) {
  options.slurmctld = SimulationTraits::Slurmctld::none;
  return std::make_unique<MarginalBenefit>(options, std::make_unique<planner::DpOnly>(),
                                           std::make_unique<planner::DpOnly>());
}

}  // namespace swell::policy
