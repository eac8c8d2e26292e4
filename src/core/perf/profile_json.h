// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "core/cluster/cluster.h"
#include "core/json.h"
#include "core/perf/profile.h"
#include "core/result.h"

namespace swell::perf {

/// Writes {"plan", "groups": [{"stage", "group", "fwd_s", ...}], "activ_bytes", ...}. The names are
/// those of the structs' members.
Json to_json(const Profile& profile);
/// Reads the form of to_json(). Checks only the form: solve() checks whether the values are
/// possible. Sets each GPU type that the plan leaves empty to the type of the node in `cluster`.
/// The error names group and member.
Result<Profile> profile_from_json(const Json& json, const cluster::Cluster& cluster);

}  // namespace swell::perf
