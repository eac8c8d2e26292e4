// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>

#include "core/policy/lending/marginal_benefit.h"
#include "core/policy/rivals/simulated_policy.h"

namespace swell::policy {

/// Makes marginal-benefit that changes DP degrees alone: Suika-DP of Suika's ablation (section
/// 5.1).
std::unique_ptr<SimulatedPolicy> make_suika_dp(MarginalBenefit::Options options = {});

}  // namespace swell::policy
