// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/cluster/cluster.h"
#include "core/perf/profile.h"
#include "core/result.h"

namespace swell::perf {

/// Fails with the first observation of `profile` that no running training can have made.
Result<void> check(const Profile& profile, const cluster::Cluster& cluster);

}  // namespace swell::perf
