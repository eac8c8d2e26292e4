// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>

#include "sim/judge/hardware.h"
#include "core/models/model.h"
#include "core/perf/profile.h"
#include "core/perf/coefficients.h"
#include "core/plan/layout.h"

namespace swell::sim::judge {

/// A job's devices, which reach about half of their peak. `factor(spread)` is drawn for each rate: a
/// random factor about 1, within exp(-spread) and exp(spread); the job's own truth, which nobody is told.
Hardware make_hardware(const models::Model& model, const cluster::Cluster& cluster, const std::function<double(double)>& factor);

/// What a profiler in the judge's groups would hand over: times as executed, bytes as `bytes` says.
perf::Profile profile_of(const plan::Layout& layout, const models::Model& model, const cluster::Cluster& cluster,
                         const perf::Coefficients& bytes, const Hardware& hardware);

}  // namespace swell::sim::judge
