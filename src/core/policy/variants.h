// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>

#include "core/policy/policy.h"

namespace swell::policy {

/// Marginal-benefit that only ever changes DP degrees: Suika-DP of Suika's ablation (section 5.1).
std::unique_ptr<Policy> make_suika_dp(double aggressiveness);
/// Marginal-benefit with Metis for a planner, and the time that this takes (Suika 5.1, footnote 7).
std::unique_ptr<Policy> make_metis(double aggressiveness);

}  // namespace swell::policy
