// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/settings.h"

#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>

#include "core/number.h"
#include "core/policy/objective.h"

namespace swell::sim {

Result<Settings> read_settings(const std::vector<std::string>& words) {
  Settings settings;
  for (const std::string& word : words) {
    const std::size_t dot = word.find('.'), equal = word.find('=');
    const bool has_names =
        dot != std::string::npos && equal != std::string::npos && dot > 0 && dot + 1 < equal;
    const std::string_view given = has_names ? std::string_view(word).substr(equal + 1) : "";
    std::optional<double> value = has_names ? read_number<double>(given) : std::nullopt;
    if (has_names && word.substr(dot + 1, equal - dot - 1) == "objective") {
      const auto objective = policy::objective_named(given);
      if (!objective)
        return Error(fmt::format("there is no objective \"{}\"; there are: {}", given,
                                 fmt::join(policy::kObjectiveNames, ", ")));
      value = static_cast<double>(*objective);
    }
    if (!value || !std::isfinite(*value))
      return Error(
          fmt::format("\"{}\" is not POLICY.PARAMETER=NUMBER, such as rubick.queueing=100", word));
    settings[word.substr(0, dot)][word.substr(dot + 1, equal - dot - 1)] = *value;
  }
  return settings;
}

Result<policy::Parameters> set_up(Setup& setup, policy::Parameters given) {
  Clocks clocks = setup.clocks.value_or(Clocks{});
  double profiler = 1;
  const struct {
    const char* name;
    double* value;
    double max;
  } known[] = {{"growth-interval", &clocks.growth_interval_s, 86400},
               {"grant-expiry", &clocks.grant_expiry_s, 86400},
               {"profile-wait", &clocks.profile_wait_s, 86400},
               {"max-shortfall", &setup.max_shortfall, 1},
               {"profile-time", &setup.profile_s, 86400},
               {"profiler", &profiler, 1}};
  for (const auto& one : known) {
    const auto found = given.find(one.name);
    if (found == given.end()) continue;
    if (!(found->second >= 0 && found->second <= one.max))
      return Error(
          fmt::format("{} of {} is out of range; give 0 to {}", one.name, found->second, one.max));
    *one.value = found->second;
    given.erase(found);
  }
  if (setup.clocks) setup.clocks = clocks;
  if (profiler < 1) setup.profiles = Profiles::full;
  return given;
}

}  // namespace swell::sim
