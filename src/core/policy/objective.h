// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace swell::policy {

/// Goal of lending (Arena, section 3.5), by which policies compare jobs.
enum class Objective : std::uint8_t {
  completion,  ///< minimum mean completion time, after deadlines are kept
  throughput,  ///< eq. 5: the sum of speeds, each in units of the job's own on its basic demand
  deadlines,   ///< eq. 5 under eq. 6: as throughput, after deadlines are kept
  fairness     ///< eq. 7: maximum of the worst ratio to the speed on a fair share
};

/// Names for users, indexed by Objective.
inline constexpr std::array<const char*, 4> kObjectiveNames = {"completion", "throughput",
                                                               "deadlines", "fairness"};

/// Returns whether GPUs that keep a deadline are lent before all others.
constexpr bool keeps_deadlines(Objective objective) {
  return objective == Objective::completion || objective == Objective::deadlines;
}

/// Returns the objective called `name`, or nothing.
constexpr std::optional<Objective> objective_named(std::string_view name) {
  const auto at = std::find(kObjectiveNames.begin(), kObjectiveNames.end(), name);
  if (at == kObjectiveNames.end()) return std::nullopt;
  return static_cast<Objective>(at - kObjectiveNames.begin());
}

}  // namespace swell::policy
