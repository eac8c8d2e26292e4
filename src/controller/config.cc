// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/config.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <vector>

#include "core/policy/registry.h"

namespace swell::controller {

Result<void> check_policy(const Config& config) {
  const std::vector<std::string> names = policy::policy_names();
  if (std::find(names.begin(), names.end(), config.policy) != names.end()) {
    if (config.objective == policy::Objective::completion ||
        policy::policy_takes_objectives(config.policy))
      return {};
    return Error(fmt::format(
        "Objective={} is not for Policy={}; write Policy=swell, or leave Objective out",
        policy::kObjectiveNames[static_cast<std::size_t>(config.objective)], config.policy));
  }
  return Error(fmt::format(
      "Policy={} is not valid; it must be one of {} (the others that swell sim knows are for it alone)",
      config.policy, fmt::join(names, ", ")));
}

Result<Config> load_config(const std::string& path) {
  Result<Config> config = Config::load(path);
  if (!config) return config;
  if (const Result<void> good = check_policy(*config); !good) return good.error().while_doing(path);
  return config;
}

}  // namespace swell::controller
