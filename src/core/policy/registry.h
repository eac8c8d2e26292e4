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
  /// Lambda_tau of those that lend by benefit: the larger, the more is lent.
  double aggressiveness = 1.0;
};

/// The policy called `name`, one that the controller may run; the error lists the names there are.
/// Those that are there to be compared with in the simulator, whose searches may take minutes,
/// stand in rivals/registry.h.
Result<std::unique_ptr<Policy>> make_policy(std::string_view name,
                                            const PolicyOptions& options = {});

/// Names that make_policy() knows, in the order they are listed to users.
std::vector<std::string> policy_names();
/// What the controller runs under the name, for its log, while no job's profile reaches it: "swell,
/// which decides as fewest-first until profiles are known". The name alone where that makes no
/// difference or there is no such policy.
std::string policy_without_profiles(std::string_view name);

}  // namespace swell::policy
