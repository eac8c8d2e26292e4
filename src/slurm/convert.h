// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <slurm/slurm.h>
#include <string>
#include <vector>

#include "slurm/records.h"

/// Converts libslurm's records to Swell's. Only this file knows their members, and how they differ
/// between versions of Slurm.
namespace swell::slurm {

JobRecord convert(const job_info_t& info);
/// Converts all jobs of a message. If Slurm had started a part of a heterogeneous job without the
/// other parts and has put it off, the part counts as waiting for resources while any other part
/// waits for them.
std::vector<JobRecord> convert(const job_info_msg_t& message);
NodeRecord convert(node_info_t& info);
PartitionRecord convert(const partition_info_t& info);
/// Reads MaxMemPerNode or MaxMemPerCPU, which Slurm keeps in one number. labelled_nodes_by(), which
/// follows, reads MCSPlugin and MCSParameters.
MemoryLimit memory_limit(std::uint64_t value);
LabelledNodes labelled_nodes_by(const std::string& plugin, std::string parameters);
ReservationRecord convert(const reserve_info_t& info);

}  // namespace swell::slurm
