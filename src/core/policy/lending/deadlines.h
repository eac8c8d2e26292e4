// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/lending/belief.h"
#include "core/policy/policy.h"

namespace swell::policy {

/// Sets ElasticJobView::needed_gpus of the jobs of `view` that have a deadline to the fewest GPUs
/// that keep it: from then on these are owed to the job (owed.h). Counts only GPUs that the first
/// `queue_depth` pending jobs leave and that are not owed to others, and only numbers for which the
/// scale table has a plan that is nearly as fast as needed. If there is no such number, a job
/// claims no more, and keeps what it has if that nearly suffices. The job that ends first claims
/// first. Returns the state of each deadline, in the order of the jobs; it is unknown for a job
/// that `belief` does not know, that was not measured, or that does not say how much is left.
std::vector<DeadlineState> claim_for_deadlines(ClusterView& view, const Belief& belief,
                                               int queue_depth);

}  // namespace swell::policy
