// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/suika_dp.h"

#include "core/planner/symmetric.h"
#include "core/policy/rivals/suika.h"

namespace swell::policy {

std::unique_ptr<SimulatedPolicy> make_suika_dp(MarginalBenefit::Options options) {
  return std::make_unique<Suika>(
      std::make_unique<MarginalBenefit>(std::move(options), std::make_unique<planner::DpOnly>(),
                                        std::make_unique<planner::DpOnly>()),
      Suika::Search{});
}

}  // namespace swell::policy
