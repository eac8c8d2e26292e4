// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "core/cluster/cluster.h"
#include "core/json.h"
#include "core/perf/profile.h"
#include "core/result.h"

namespace swell::perf {

/// Writes {"plan", "groups": [{"stage", "group", "fwd_s", ...}], "activ_bytes", ...}, with the
/// names of the structs' members.
Json to_json(const Profile& profile);
/// Reads that form and checks the form only: solve() tells whether a training can have made it. A
/// GPU type that the plan leaves empty becomes the one that `cluster` has there. The error names
/// group and member.
Result<Profile> profile_from_json(const Json& json, const cluster::Cluster& cluster);

}  // namespace swell::perf
