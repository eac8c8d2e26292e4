// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/config.h"
#include "core/compute_mode.h"
#include "core/result.h"
#include "slurm/live_slurm.h"
#include "slurm/records.h"
#include "slurm/site_config.h"

/// A site's configuration as plain values: gathered by gather_site(), judged by the checks, which
/// ask no service. Tests make such values themselves.
namespace swell::tools::doctor {

/// One of Swell's plugins on this host.
struct PluginFile {
  std::string name;        ///< "sched_swell.so"
  std::string path;        ///< empty: in none of the folders searched
  std::string unreadable;  ///< path and reason, if this user cannot read the file
  /// SLURM_VERSION_NUMBER of the Slurm that it was built for.
  Result<std::uint32_t> version = Error("not read");
};

/// A plugin that slurm.conf names beside those of Swell, and without which slurmctld does not
/// start.
struct NamedPlugin {
  std::string key;   ///< of slurm.conf: "JobSubmitPlugins", "AuthType"
  std::string word;  ///< of the key's value: "lua", "auth/munge"
  PluginFile file;
  std::vector<std::string> others;  ///< words for the existing plugins of this kind
  /// Returns whether it is in no folder of PluginDir, as far as this user may see.
  bool is_missing() const { return file.path.empty() && file.unreadable.empty(); }
};

/// Entry of spank_swell in plugstack.conf.
struct PlugstackEntry {
  bool required = false;
  bool publishes = true;  ///< topology=on, the default: slurmd publishes its node's topology
  std::string where;      ///< the file that has the line
  PluginFile plugin;
};

/// A row of `sacctmgr show qos`.
struct Qos {
  std::string name;
  std::vector<std::string> preempt;  ///< names of the QOS that it may preempt
  std::string preempt_mode;          ///< "cluster", "cancel", ...
  std::int64_t grace_s = 0, exempt_s = 0;
  double usage_factor = 1;
  std::int64_t priority = 0;
  std::vector<std::string> flags;
  /// Limits that are set, such as {"GrpTRES", "gres/gpu=8"}.
  std::vector<std::pair<std::string, std::string>> limits;
};

/// A row of `sacctmgr show assoc`, inherited values included.
struct Association {
  std::string account, user;  ///< empty user: a row of the account itself
  std::vector<std::string> qos;
  /// Limits that are set, by the names that a QOS has for them.
  std::vector<std::pair<std::string, std::string>> limits;
};

struct Accounting {
  std::vector<Qos> qos;
  std::vector<Association> associations;
};

struct Site {
  std::string host;                 ///< this host
  OneProgramGpus one_program_gpus;  ///< of this host (core/compute_mode.h)
  /// Whether slurmctld answers.
  Result<void> answers = Error(ErrorCode::not_asked, "not asked");
  bool cannot_ask = false;  ///< munge fails, or no program starts with this PluginDir
  /// The site's configuration: from slurm.conf if that can be read (on slurmctld's host), otherwise
  /// as slurmctld runs with it. An error if neither is known.
  Result<slurm::ControllerConfig> slurmctld = Error("not asked");
  slurm::SiteConfig config;  ///< from the same source
  /// Changes of slurm.conf that wait for a restart of slurmctld.
  std::vector<std::string> not_yet_running;
  std::vector<slurm::SitePartition> partitions;
  slurm::Snapshot queue;

  std::string swell_conf_path;
  Result<controller::Config> swell_conf = Error("not read");
  bool swell_conf_for_all = true;  ///< everybody may read it

  /// sched_swell.so (or the plugin in its place), job_submit_swell.so.
  std::vector<PluginFile> slurmctld_plugins;
  std::vector<std::string> missing_folders;  ///< folders of PluginDir that this host lacks
  std::vector<NamedPlugin> named_plugins;
  PluginFile shadow;  ///< Swell's sched_backfill.so; path empty: in no folder of PluginDir
  /// Whether SchedulerType is sched/backfill and Swell's plugin of that name comes first.
  bool under_stock_name = false;
  PluginFile select;  ///< Swell's select_cons_tres.so; path empty: in no folder of PluginDir
  bool select_comes_first = false;  ///< no other plugin of that name stands before it
  std::string plugstack_path;
  Result<std::optional<PlugstackEntry>> plugstack = Error("not read");

  /// Read only if swell.conf has an ExpansionQOS.
  Result<Accounting> accounting = Error("not asked");
  Result<void> munge = Error("not tried");
  std::string control_host;
  Result<void> control_port = Error("not tried");
  /// The problems that the controller reports, by subject.
  std::map<std::string, std::string> troubles;

  /// Returns whether this host runs slurmctld; other hosts need fewer files.
  bool on_controller() const;
  /// Returns whether slurmctld would start with this host's folders of PluginDir and named plugins.
  bool would_start() const;
  /// Returns partitions that elastic jobs may run in: up, with GPUs, not the expansion partition.
  std::vector<slurm::SitePartition> gpu_partitions() const;
};

}  // namespace swell::tools::doctor
