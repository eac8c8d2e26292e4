// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>

#include "core/policy/policy.h"

namespace swell::policy {

/// Makes marginal-benefit that changes DP degrees alone: Suika-DP of Suika's ablation (section
/// 5.1).
std::unique_ptr<Policy> make_suika_dp(double aggressiveness, double fairness = 0);

}  // namespace swell::policy
