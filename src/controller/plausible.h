// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/cluster.h"
#include "core/perf/coefficients.h"
#include "core/perf/profile.h"
#include "core/result.h"

namespace swell::controller {

/// Whether a job's report of itself can be true: what users' programs say is checked against what
/// their GPUs can do at all and against the step that they measured themselves. The error is a
/// sentence for the job's owner. REQUIRES: perf::check() accepts the profile.
///  - no pass reads parameters faster than the device's memory, or computes faster than its peak;
///  - an optimizer step reads and writes its state no faster than the memory;
///  - no GPU holds more than it has.
Result<void> check_possible(const perf::Profile& profile, const cluster::Cluster& machines);

/// Whether the passes explain the measured step: coefficients solved from a profile whose regions
/// are longer than the step, or are a small part of it, would predict what never comes.
/// `regions_s`: what the observed regions of one step add up to.
Result<void> check_explains(double regions_s, double step_s);

/// Returns whether check_explains() fails because the regions are too small a part of the step: the
/// program did not mark all of its regions, or it waits between steps, for example for data. Such a
/// report is incomplete, but it can be true.
bool explains_too_little(double regions_s, double step_s);

}  // namespace swell::controller
