// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "slurm/slurm_api.h"

namespace swell::slurm {

/// Makes a SlurmApi over libslurm's public API: RPCs to the slurmctld that slurm.conf names, also
/// from inside slurmctld. Holds no lock of slurmctld. Each call waits at most MessageTimeout.
std::unique_ptr<SlurmApi> make_live_slurm();

/// Loads all nodes, and sets `last`; returns nothing if no node has changed since `last`. With
/// `last` 0 it always returns them. One RPC.
Result<std::optional<std::vector<NodeRecord>>> load_nodes_since(std::time_t& last);

/// The parts of slurmctld's running configuration that Swell uses.
struct ControllerConfig {
  std::string slurm_conf;          ///< path of slurm.conf as slurmctld read it
  std::vector<std::string> hosts;  ///< addresses of slurmctld, primary first
  std::string own_host;            ///< this host's address in `hosts`, otherwise the primary's
  std::string auth_type;           ///< "auth/munge"
  std::string auth_info;           ///< AuthInfo, e.g. "socket=/run/munge/munge.socket.2"
  std::string state_save_location;
  std::string plugin_dir;
  std::string scheduler_type, select_type, job_submit_plugins, preempt_type, plugstack;
  std::string slurmctld_parameters, accounting_storage_type, version;
  std::uint16_t preempt_mode = 0;
  /// Among jobs of equal priority that may be preempted, the youngest is first.
  bool preempts_youngest_first = false;
  std::uint16_t inactive_limit_s = 0;
  bool requeues = true;  ///< JobRequeue: for jobs that do not set it themselves
  uid_t slurm_uid = 0;
};
Result<ControllerConfig> load_controller_config();

/// Returns the path of the munge socket in AuthInfo; empty: munge's default.
std::string munge_socket_of(const std::string& auth_info);

/// Returns the text for an errno of libslurm.
std::string slurm_reason(int error);

}  // namespace swell::slurm
