// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>

#include "core/result.h"
#include "slurm/records.h"

namespace swell::slurm {

/// Asks slurmctld for the job number of task `task` of job array `array`. The error says how the
/// number of one that waits, or has ended, is found.
Result<JobId> find_array_task(JobId array, std::uint32_t task);

}  // namespace swell::slurm
