// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <fmt/format.h>
#include <map>
#include <string>
#include <variant>

#include "core/policy/objective.h"
#include "core/result.h"

namespace swell::policy {

/// Values of parameters, by name.
using Parameters = std::map<std::string, double>;

/// A number among a policy's Options that a simulation may set: its name, its member, and its
/// minimum and maximum sensible values.
template <typename Options>
struct Parameter {
  const char* name;
  std::variant<double Options::*, Objective Options::*> value;
  double min = 0, max = 1e6;
  bool whole = false;  ///< only whole numbers make sense
  double in(const Options& options) const {
    if (const auto* const number = std::get_if<double Options::*>(&value)) return options.**number;
    return static_cast<double>(options.*std::get<Objective Options::*>(value));
  }
  void set(Options& options, double to) const {
    if (const auto* const number = std::get_if<double Options::*>(&value)) options.** number = to;
    else options.*std::get<Objective Options::*>(value) = static_cast<Objective>(to);
  }
};

/// Returns `options` with the values of `given`; the error names the parameter that is unknown or
/// out of its range.
template <typename Options, std::size_t N>
Result<Options> with(Options options, const std::array<Parameter<Options>, N>& known,
                     const Parameters& given) {
  for (const auto& [name, value] : given) {
    std::string names;
    bool found = false;
    for (const Parameter<Options>& one : known) {
      names += (names.empty() ? "" : ", ") + std::string(one.name);
      if (name != one.name) continue;
      found = true;
      if (!(value >= one.min && value <= one.max))
        return Error(
            fmt::format("{} of {} is out of range; give {} to {}", name, value, one.min, one.max));
      if (one.whole && value != std::floor(value))
        return Error(fmt::format("{} of {} is not a whole number; give one from {} to {}", name,
                                 value, one.min, one.max));
      one.set(options, value);
    }
    if (!found)
      return Error(fmt::format("there is no parameter \"{}\"; {}", name,
                               N == 0 ? "there are none" : "there are: " + names));
  }
  return options;
}

}  // namespace swell::policy
