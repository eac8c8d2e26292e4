// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

/// What only a check of the site's configuration wants to know, beyond what live_slurm.h gives the
/// controller. Over the public API; read by `swell doctor`.
namespace swell::slurm {

/// A program that is no part of Slurm calls this once before anything else of libslurm. Where there
/// is no slurm.conf, libslurm says so and ends the program, as it does Slurm's own.
void init_libslurm();

/// slurmctld's running configuration, in addition to ControllerConfig.
struct SiteConfig {
  std::string cluster_name;
  std::vector<std::string> controller_names;  ///< host names of slurmctld, primary first
  std::string preempt_parameters;             ///< PreemptParameters; empty in versions without it
  bool enforces_qos = false, enforces_limits = false;  ///< of AccountingStorageEnforce
  std::uint32_t preempt_exempt_s = 0;                  ///< PreemptExemptTime of the cluster
  bool preempt_cancels = false;  ///< PreemptMode ends jobs (CANCEL, or REQUEUE where it can)
  bool preempt_off = false;
};
Result<SiteConfig> load_site_config();

enum class PreemptMode { of_cluster, off, cancel, requeue, suspend };
const char* to_text(PreemptMode mode) noexcept;  ///< as slurm.conf writes it

struct SitePartition {
  std::string name;
  std::vector<std::string> nodes;
  std::vector<std::string> alloc_nodes;  ///< AllocNodes; empty: ALL
  std::string allow_accounts, deny_accounts, allow_qos, deny_qos,
      allow_groups;  ///< empty: all, or none denied
  int priority_tier = 1;
  std::string qos;  ///< its own, whose limits hold for all jobs in it
  PreemptMode preempt_mode = PreemptMode::of_cluster;
  std::uint32_t grace_s = 0;
  std::uint32_t max_time_min = 0;  ///< 0: unlimited
  std::uint32_t max_nodes = 0;     ///< 0: unlimited
  bool up = false, root_only = false;
};
Result<std::vector<SitePartition>> load_site_partitions();

/// GraceTime of a QOS, out of slurmctld's own cache of slurmdbd's records; the error says that
/// there is no such QOS.
Result<std::uint32_t> load_qos_grace(const std::string& qos);

/// The name of this host as Slurm compares it: without its domain.
std::string short_host_name();

}  // namespace swell::slurm
