// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <slurm/slurm.h>

/// What libslurm's slurm_load_...() hand out, freed whole. libslurm's own free functions forget
/// some of the texts that its unpacking made, other ones in each version (the table in loaded.cc):
/// inside slurmctld, which Swell asks for its queue many times a minute, that would be memory lost
/// at every look.
namespace swell::slurm {

/// Frees first what libslurm of some version forgets, and leaves null there, then the rest as
/// libslurm does.
struct FreeLoaded {
  void operator()(job_info_msg_t* message) const noexcept;
  void operator()(node_info_msg_t* message) const noexcept;
  void operator()(partition_info_msg_t* message) const noexcept;
  void operator()(slurm_conf_t* conf) const noexcept;
};

using LoadedJobs = std::unique_ptr<job_info_msg_t, FreeLoaded>;
using LoadedNodes = std::unique_ptr<node_info_msg_t, FreeLoaded>;
using LoadedPartitions = std::unique_ptr<partition_info_msg_t, FreeLoaded>;
using LoadedConf = std::unique_ptr<slurm_conf_t, FreeLoaded>;

}  // namespace swell::slurm
