// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/policy/parameters.h"
#include "sim/state.h"

namespace swell::sim {

/// Parameters by the policy that they are for.
using Settings = std::map<std::string, policy::Parameters>;

/// Reads words such as "rubick.queueing=100" and "swell.objective=fairness"; the error names the
/// first that cannot be read. Where a parameter is given twice the last one holds.
Result<Settings> read_settings(const std::vector<std::string>& words);

/// Puts into `setup` what a simulation has a parameter of its own for (growth-interval,
/// grant-expiry, profile-wait, max-shortfall; profile-time, and profiler=0 for Profiles::full), and
/// gives back the rest, which are the policy's. The error names one that is out of its range.
Result<policy::Parameters> set_up(Setup& setup, policy::Parameters given);

}  // namespace swell::sim
