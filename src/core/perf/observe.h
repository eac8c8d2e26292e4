// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/cluster.h"
#include "core/models/model.h"
#include "core/perf/coefficients.h"
#include "core/perf/profile.h"
#include "core/plan/layout.h"

namespace swell::perf {

/// What every group of `layout` would observe if the performance model with coefficients `k` were
/// exact: the profile from which solve() finds `k` again. For simulations and tests.
Profile observe(const plan::Layout& layout, const models::Model& model,
                const cluster::Cluster& cluster, const Coefficients& k);

}  // namespace swell::perf
