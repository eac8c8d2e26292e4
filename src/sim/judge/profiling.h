// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>

#include "core/perf/profile.h"
#include "core/plan/layout.h"
#include "sim/judge/hardware.h"

namespace swell::sim::judge {

/// Draws a job's hidden hardware. `factor(spread)` gives each GPU type a factor between
/// exp(-spread) and exp(spread) of its usual speed.
Hardware make_hardware(const models::Model& model, const cluster::Cluster& cluster,
                       const Software& software, const std::function<double(double)>& factor);

/// Returns the profile that a profiler would make of an execution: times as executed, bytes as the
/// judge counts them.
perf::Profile profile_of(const plan::Layout& layout, const cluster::Cluster& cluster,
                         const Hardware& hardware);

}  // namespace swell::sim::judge
