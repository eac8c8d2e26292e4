// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>

#include "core/policy/policy.h"

namespace swell::policy {

/// Marginal-benefit that only ever changes DP degrees: Suika-DP of Suika's ablation (section 5.1).
std::unique_ptr<Policy> make_suika_dp(double aggressiveness);

}  // namespace swell::policy
