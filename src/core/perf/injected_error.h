// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>

#include "core/plan/layout.h"

namespace swell::perf {

/// Normal factor of mean 1 that depends on the seed and on the plan's shape alone, not on which
/// nodes and GPUs it has: the error of a predicted time, injected by simulations
/// (Coefficients::plan_error).
double injected_error(const plan::Layout& layout, double deviation, std::uint64_t seed) noexcept;

}  // namespace swell::perf
