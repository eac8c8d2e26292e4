// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/policy/registry.h"
#include "core/result.h"

namespace swell::policy {

/// The policy called `name` for a simulation: those of make_policy(), and the rivals, which no
/// controller can load. The error lists the names there are, or says what this build lacks ("sia"
/// needs GLPK).
Result<std::unique_ptr<Policy>> make_simulated_policy(std::string_view name,
                                                      const PolicyOptions& options = {});

/// Names that make_simulated_policy() knows in this build.
std::vector<std::string> simulated_policy_names();

}  // namespace swell::policy
