// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/policy/policy.h"
#include "core/result.h"

namespace swell::policy {

/// The policy called `name`, with its defaults; the error lists the names there are.
Result<std::unique_ptr<Policy>> make_policy(std::string_view name);

/// Names that make_policy() knows, in the order they are listed to users.
std::vector<std::string> policy_names();

}  // namespace swell::policy
