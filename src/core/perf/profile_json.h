// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "core/cluster/cluster.h"
#include "core/json.h"
#include "core/perf/profile.h"
#include "core/result.h"

namespace swell::perf {

/// {"plan", "groups": [{"stage", "group", "fwd_s", ...}], "activ_bytes", ...}: members as the
/// structs have them.
Json to_json(const Profile& profile);
/// Form only: whether a training can have made it, solve() says. A GPU type that the plan leaves
/// empty is set to the one that `cluster` has there. The error names group and member.
Result<Profile> profile_from_json(const Json& json, const cluster::Cluster& cluster);

}  // namespace swell::perf
