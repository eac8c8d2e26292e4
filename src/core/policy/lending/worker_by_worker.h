// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/policy/lending/placement_state.h"

namespace swell::policy {

/// Lends what `placement` has left to `jobs` whose training is not known: first to those that have
/// fewer GPUs than they want, up to these, in the order in which they started; then one worker at a
/// time to the job with the fewest. Grows a job that is owed nothing only where its total rises by
/// at least the share `min_growth`.
std::vector<Grant> lend_worker_by_worker(PlacementState& placement,
                                         const std::vector<const ElasticJobView*>& jobs,
                                         double min_growth);

/// Lends as lend_worker_by_worker() to jobs that have fewer GPUs than they want, and no more than
/// these.
std::vector<Grant> lend_what_is_owed(PlacementState& placement,
                                     const std::vector<const ElasticJobView*>& jobs);

}  // namespace swell::policy
