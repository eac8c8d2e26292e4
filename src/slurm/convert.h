// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <slurm/slurm.h>

#include "slurm/records.h"

/// Conversion of libslurm's records to Swell's: the one place that knows their members and how they
/// differ between versions of Slurm.
namespace swell::slurm {

JobRecord convert(const job_info_t& info);
NodeRecord convert(node_info_t& info);
PartitionRecord convert(const partition_info_t& info);

}  // namespace swell::slurm
