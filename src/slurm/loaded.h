// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <slurm/slurm.h>

/// Owners of what libslurm's slurm_load_...() return, which free all of it. libslurm's own free
/// functions forget some texts that its unpacking made, different ones in each version (the table
/// in loaded.cc). Inside slurmctld, where Swell loads the queue many times a minute, that would
/// leak memory with every load.
namespace swell::slurm {

/// Frees what the free functions of some version forget, leaves null there, and then calls these
/// functions.
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
