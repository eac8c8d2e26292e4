// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/injected_error.h"

#include <algorithm>
#include <cmath>

#include "core/perf/measured_plans.h"

namespace swell::perf {

namespace {

/// Minimum of an injected factor: times stay above 0.
constexpr double kMinFactor = 0.1;

}  // namespace

double injected_error(const plan::Layout& layout, double deviation, std::uint64_t seed) noexcept {
  std::uint64_t state = shape_of(layout, seed);
  const auto mix = [&](std::uint64_t value) {  // SplitMix64
    state += value + 0x9e3779b97f4a7c15u;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return state = z ^ (z >> 31);
  };
  const auto uniform = [&] { return static_cast<double>(mix(1) >> 11) * 0x1p-53; };
  const double radius = std::sqrt(-2 * std::log1p(-uniform()));
  const double normal = radius * std::cos(6.283185307179586 * uniform());
  return std::max(kMinFactor, 1 + deviation * normal);
}

}  // namespace swell::perf
