// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>
#include <functional>

#include "tools/doctor/site.h"

namespace swell::tools::doctor {

/// Gathers the configuration from slurmctld, slurmdbd (through sacctmgr), munge, the control port
/// and this host's files; changes nothing. A fact that cannot be read is an error in its member.
Site gather_site();

/// Reads the output of sacctmgr in the formats below. Like the functions that follow, it is
/// declared here for tests.
Result<Accounting> accounting_from(const std::string& qos_rows,
                                   const std::string& association_rows);
/// Finds the line of a plugstack.conf, or of a file that it includes, that names spank_swell.so;
/// nullopt if there is none.
Result<std::optional<PlugstackEntry>> plugstack_entry(const std::string& plugstack_path,
                                                      const std::string& plugin_dir);
/// Looks for a plugin in PluginDir, a colon-separated list.
PluginFile find_plugin(const std::string& name, const std::string& plugin_dir);

/// Returns the folders of PluginDir that this host lacks: no program of Slurm starts without them.
std::vector<std::string> missing_folders(const std::string& plugin_dir);

/// Looks for the plugins that AuthType and JobSubmitPlugins name.
std::vector<NamedPlugin> named_plugins(const slurm::ControllerConfig& config);

/// Looks for Swell's own plugin of a name that a plugin of Slurm has, too; `comes_first`: whether
/// it is the first of that name in PluginDir.
PluginFile find_shadow(const std::string& name, const std::string& plugin_dir, bool& comes_first);

/// Calls `attempt` until it gives no error or `patience` is over, with pauses, since a slurmctld
/// that was just started does not listen at once. A service that answers is asked once.
Result<void> try_for(std::chrono::milliseconds patience,
                     const std::function<Result<void>()>& attempt);

/// Columns that accounting_from() expects, for sacctmgr's format=.
extern const char* const kQosFormat;
extern const char* const kAssociationFormat;

}  // namespace swell::tools::doctor
