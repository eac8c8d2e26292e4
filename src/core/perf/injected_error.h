// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>

#include "core/plan/layout.h"

namespace swell::perf {

/// Returns a normally distributed factor of mean 1 that depends only on the seed and the plan's
/// shape, not on its nodes and GPUs: the error that simulations inject into a predicted time
/// (Coefficients::plan_error).
double injected_error(const plan::Layout& layout, double deviation, std::uint64_t seed) noexcept;

}  // namespace swell::perf
