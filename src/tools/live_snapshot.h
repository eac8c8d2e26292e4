// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/result.h"
#include "slurm/records.h"

namespace swell::tools {

/// Slurm's records of this moment, with users by name.
Result<slurm::Snapshot> load_snapshot();

}  // namespace swell::tools
