// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "tools/doctor/site.h"

namespace swell::tools::doctor {

/// Asks slurmctld, slurmdbd (through sacctmgr), munge, the control port and this host's files, and
/// changes nothing. What cannot be learnt is an error in its place.
Site gather_site();

/// The parts that read text, for tests.
Result<Accounting> accounting_from(const std::string& qos_rows,
                                   const std::string& association_rows);
/// The line of a plugstack.conf (and of the files that it includes) that names spank_swell.so.
Result<std::optional<PlugstackEntry>> plugstack_entry(const std::string& plugstack_path,
                                                      const std::string& plugin_dir);
/// A plugin looked for in PluginDir, a colon-separated list.
PluginFile find_plugin(const std::string& name, const std::string& plugin_dir);

/// Swell's own plugin of a name that Slurm has too; `comes_first`: no other of that name stands
/// before it.
PluginFile find_shadow(const std::string& name, const std::string& plugin_dir, bool& comes_first);

/// What accounting_from() expects, as sacctmgr's format= takes it.
extern const char* const qos_format;
extern const char* const association_format;

}  // namespace swell::tools::doctor
