// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/result.h"
#include "sim/state.h"

namespace swell::sim {

/// Runs the workload of `setup` to its end, event by event. The error is the first invariant that
/// broke, or names jobs that can never start.
Result<Outcome> simulate(const Setup& setup);

}  // namespace swell::sim
