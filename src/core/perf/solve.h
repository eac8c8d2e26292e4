// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/cluster.h"
#include "core/perf/coefficients.h"
#include "core/perf/profile.h"
#include "core/plan/allocations.h"

namespace swell::perf {

/// Computes all coefficients from one profile of a running plan: Suika, appendix A.4. Each is the
/// solution of one equation over all observed groups (least squares).
///  - Without data parallelism k_overlap is 1, the most pessimistic value.
///  - With one TP degree k_activ-np comes from whole_activations; with two, both activation sizes
///    come from the memory peaks.
///  - GPU types that the plan does not use get coefficients by extrapolate().
/// Returns an error that names stage, group and value for impossible observations: a negative time,
/// communication longer than its pass, TP communication without TP, or a peak below the group's
/// state.
/// `allocations`: allocations of the job that ran the plan. `model`: needed for its MTP heads only;
/// without heads, the plan is enough.
Result<Coefficients> solve(const Profile& profile, const cluster::Cluster& cluster,
                           const plan::Allocations& allocations = {},
                           const models::Model& model = {});

}  // namespace swell::perf
