// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/lending/belief.h"
#include "core/policy/policy.h"

namespace swell::policy {

/// Sets ElasticJobView::needed_gpus of the jobs of `view` that have a deadline, to the fewest GPUs
/// that keep it: from then on these are owed to the job (owed.h). A job claims no more where no
/// number within reach helps: one of GPUs that pending jobs leave (`queue_depth` of them) and that
/// are not owed to others, with which its scale table has a plan that is nearly as fast as needed.
/// It keeps what it has where that nearly suffices. The job that ends first claims first. Returns
/// how each of the deadlines stands, in the order of the jobs; those of jobs that `belief` does not
/// know, or that do not say how much is left, are unknown.
std::vector<DeadlineState> claim_for_deadlines(ClusterView& view, const Belief& belief,
                                               int queue_depth);

}  // namespace swell::policy
