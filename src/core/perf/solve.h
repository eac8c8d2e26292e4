// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/cluster.h"
#include "core/perf/coefficients.h"
#include "core/perf/profile.h"
#include "core/plan/allocations.h"

namespace swell::perf {

/// Solves all coefficients from one profile of a running plan: Suika, appendix A.4. Each is
/// inverted from one equation, over all observed groups (least squares).
///  - Without data parallelism k_overlap is 1, the pessimistic end.
///  - With one TP degree k_activ-np comes from whole_activations; with two, both activation sizes
///    come from the memory peaks.
///  - GPU types that the plan does not use get extrapolate().
/// Observations that no training can have made (a negative time, communication longer than the pass
/// it is part of, TP communication without TP, a peak below the state it holds) are errors that
/// name stage, group and value.
/// `allocations`: those of the job that ran the plan. `model`: what its MTP heads are; without any,
/// no more than the plan needs to be known.
Result<Coefficients> solve(const Profile& profile, const cluster::Cluster& cluster,
                           const plan::Allocations& allocations = {},
                           const models::Model& model = {});

}  // namespace swell::perf
