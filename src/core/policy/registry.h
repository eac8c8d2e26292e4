// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/policy/policy.h"
#include "core/result.h"

namespace swell::policy {

/// What can be set about policies; each takes what it knows.
struct PolicyOptions {
  double aggressiveness = 1.0;  ///< lambda_tau of those that lend by benefit: the larger, the more is lent
};

/// The policy called `name`; the error lists the names there are.
Result<std::unique_ptr<Policy>> make_policy(std::string_view name, const PolicyOptions& options = {});

/// Names that make_policy() knows, in the order they are listed to users.
std::vector<std::string> policy_names();
/// Those of them that the controller may run, on slurmctld's own thread for Swell: the others are there to
/// be compared with in the simulator, and their searches may take minutes.
std::vector<std::string> live_policy_names();

}  // namespace swell::policy
