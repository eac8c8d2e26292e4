// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>

#include "core/result.h"
#include "slurm/records.h"

namespace swell::slurm {

/// Asks slurmctld for the job number of task `task` of job array `array`. The error says how to
/// find the number of a task that is pending or has ended.
Result<JobId> find_array_task(JobId array, std::uint32_t task);

}  // namespace swell::slurm
