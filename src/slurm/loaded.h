// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <slurm/slurm.h>

/// Owners of the results of libslurm's slurm_load_...(), which free them completely. libslurm's own
/// free functions forget some texts that its unpacking allocated, different ones in each version
/// (the table in loaded.cc). Inside slurmctld, where Swell loads the queue many times a minute,
/// each load would leak memory.
namespace swell::slurm {

/// Frees the members that the free functions of some version forget, sets them to null, and then
/// calls these functions.
struct FreeLoaded {
  void operator()(job_info_msg_t* message) const noexcept;
  void operator()(node_info_msg_t* message) const noexcept;
  void operator()(partition_info_msg_t* message) const noexcept;
  void operator()(reserve_info_msg_t* message) const noexcept;
  void operator()(slurm_conf_t* conf) const noexcept;
};

using LoadedJobs = std::unique_ptr<job_info_msg_t, FreeLoaded>;
using LoadedNodes = std::unique_ptr<node_info_msg_t, FreeLoaded>;
using LoadedPartitions = std::unique_ptr<partition_info_msg_t, FreeLoaded>;
using LoadedReservations = std::unique_ptr<reserve_info_msg_t, FreeLoaded>;
using LoadedConf = std::unique_ptr<slurm_conf_t, FreeLoaded>;

}  // namespace swell::slurm
