// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/policy/registry.h"
#include "core/policy/rivals/simulated_policy.h"
#include "core/result.h"

namespace swell::policy {

/// Makes the policy called `name` for a simulation: one of make_policy(), or a rival, which no
/// controller can load. The error lists the known names, or says what this build lacks ("sia" and
/// "gavel" need GLPK).
Result<std::unique_ptr<SimulatedPolicy>> make_simulated_policy(std::string_view name,
                                                               const PolicyOptions& options = {});

/// Returns the names that make_simulated_policy() knows in this build.
std::vector<std::string> simulated_policy_names();

}  // namespace swell::policy
