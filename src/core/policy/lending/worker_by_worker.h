// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/policy/lending/placement_state.h"

namespace swell::policy {

/// Lends what `placement` has left to `jobs` whose training is not known: first, in the order of
/// their starts, to those that have fewer GPUs than they want, up to that number; then one worker
/// at a time to the job with the fewest. Grows a job that is owed nothing only if its total rises
/// by at least the share `min_growth`.
std::vector<Grant> lend_worker_by_worker(PlacementState& placement,
                                         const std::vector<const ElasticJobView*>& jobs,
                                         double min_growth);

/// Does the same only for jobs that have fewer GPUs than they want, and lends no more than that
/// number.
std::vector<Grant> lend_what_is_owed(PlacementState& placement,
                                     const std::vector<const ElasticJobView*>& jobs);

}  // namespace swell::policy
