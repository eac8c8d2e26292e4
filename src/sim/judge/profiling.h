// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>

#include "core/perf/profile.h"
#include "core/plan/layout.h"
#include "sim/judge/hardware.h"

namespace swell::sim::judge {

/// A job's devices: each type within exp(-spread) and exp(spread) of what it usually does, as
/// `factor(spread)` draws it; the job's own truth, which nobody is told.
Hardware make_hardware(const models::Model& model, const cluster::Cluster& cluster,
                       const Software& software, const std::function<double(double)>& factor);

/// What a profiler in the judge's groups would hand over: times as executed, bytes as the judge
/// counts them.
perf::Profile profile_of(const plan::Layout& layout, const cluster::Cluster& cluster,
                         const Hardware& hardware);

}  // namespace swell::sim::judge
