// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/result.h"

/// Configuration that only a check of the site needs, in addition to ControllerConfig. Read over
/// the public API by `swell doctor`.
namespace swell::slurm {

/// Initializes libslurm. Without a slurm.conf, libslurm prints an error and ends the program, as it
/// does with Slurm's own programs. REQUIRES: called once, before any other function of libslurm, by
/// a program that is not part of Slurm.
void init_libslurm();

/// slurmctld's running configuration, in addition to ControllerConfig.
struct SiteConfig {
  std::string cluster_name;
  std::vector<std::string> controller_names;  ///< host names of slurmctld, primary first
  std::string preempt_parameters;             ///< PreemptParameters; empty in versions without it
  bool enforces_qos = false, enforces_limits = false;  ///< words of AccountingStorageEnforce
  std::uint32_t preempt_exempt_s = 0;                  ///< PreemptExemptTime of the cluster
  /// PreemptMode ends jobs (CANCEL, or REQUEUE if a job can be requeued).
  bool preempt_cancels = false;
  bool preempt_off = false;
  bool hides_nodes = false;    ///< PrivateData: users do not see nodes
  bool devices_apart = false;  ///< result of devices_apart() of fabric_source.h
};
Result<SiteConfig> load_site_config();

enum class PreemptMode { of_cluster, off, cancel, requeue, suspend };
const char* to_text(PreemptMode mode) noexcept;  ///< returns the word of slurm.conf

struct SitePartition {
  std::string name;
  std::vector<std::string> nodes;
  std::vector<std::string> alloc_nodes;  ///< AllocNodes; empty: ALL
  /// Empty: all are allowed, or none is denied.
  std::string allow_accounts, deny_accounts, allow_qos, deny_qos, allow_groups;
  int priority_tier = 1;
  std::string qos;  ///< QOS of the partition, with limits for all jobs in it; empty: none
  PreemptMode preempt_mode = PreemptMode::of_cluster;
  std::uint32_t grace_s = 0;
  std::uint32_t max_time_min = 0;  ///< 0: unlimited
  std::uint32_t max_nodes = 0;     ///< 0: unlimited
  bool up = false, root_only = false;
};
Result<std::vector<SitePartition>> load_site_partitions();

/// Returns GraceTime of a QOS in seconds, from slurmctld's cache of slurmdbd's records; an error if
/// there is no such QOS.
Result<std::uint32_t> load_qos_grace(const std::string& qos);

/// Returns MaxWall in minutes of each QOS that has one, from the same cache; empty without
/// slurmdbd.
Result<std::map<std::string, std::uint32_t>> load_qos_max_times();

/// Returns the name of this host without its domain, as Slurm compares it.
std::string short_host_name();

}  // namespace swell::slurm
