// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/cluster.h"
#include "core/models/model.h"
#include "core/perf/coefficients.h"
#include "core/perf/profile.h"
#include "core/plan/layout.h"

namespace swell::perf {

/// Returns the profile that `layout` would give if the performance model with coefficients `k` were
/// exact: solve() computes `k` from it. For simulations and tests.
Profile observe(const plan::Layout& layout, const models::Model& model,
                const cluster::Cluster& cluster, const Coefficients& k);

}  // namespace swell::perf
