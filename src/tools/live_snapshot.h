// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <sys/types.h>

#include "core/result.h"
#include "slurm/records.h"

namespace swell::tools {

/// Returns Slurm's current records, with users by name.
Result<slurm::Snapshot> load_snapshot();

/// Returns the user's name, or the uid as text if there is none.
std::string name_of_user(uid_t uid);

}  // namespace swell::tools
