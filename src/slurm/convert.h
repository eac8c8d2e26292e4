// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <slurm/slurm.h>
#include <vector>

#include "slurm/records.h"

/// Conversion of libslurm's records to Swell's: the one place that knows their members and how they
/// differ between versions of Slurm.
namespace swell::slurm {

JobRecord convert(const job_info_t& info);
/// All jobs of a message. A part of a heterogeneous job that Slurm had started without the others
/// and has put off waits for resources, too, as long as one of the others does.
std::vector<JobRecord> convert(const job_info_msg_t& message);
NodeRecord convert(node_info_t& info);
PartitionRecord convert(const partition_info_t& info);
ReservationRecord convert(const reserve_info_t& info);

}  // namespace swell::slurm
