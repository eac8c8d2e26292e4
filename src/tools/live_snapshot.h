// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <sys/types.h>

#include "core/result.h"
#include "slurm/records.h"

namespace swell::tools {

/// Slurm's records of this moment, with users by name.
Result<slurm::Snapshot> load_snapshot();

/// The user's name; the number where there is none.
std::string name_of_user(uid_t uid);

}  // namespace swell::tools
