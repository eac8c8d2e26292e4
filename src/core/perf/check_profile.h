// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/cluster.h"
#include "core/perf/profile.h"
#include "core/result.h"

namespace swell::perf {

/// Returns an error for the first observation of `profile` that is impossible in a real training.
Result<void> check(const Profile& profile, const cluster::Cluster& cluster);

}  // namespace swell::perf
