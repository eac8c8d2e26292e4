// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

#include "slurm/conf_file.h"
#include "slurm/live_slurm.h"
#include "slurm/site_config.h"

namespace swell::tools::doctor {

using slurm::SlurmConf;

/// Returns the configuration with which slurmctld will run once it is restarted with the file at
/// `path`: the file's values over `running`, which counts for what the file does not set (a default
/// PluginDir, the version).
slurm::ControllerConfig with_file(slurm::ControllerConfig running, const SlurmConf& file,
                                  const std::string& path);
/// The same for a SiteConfig, which also depends on cgroup.conf in the same folder.
slurm::SiteConfig with_file(slurm::SiteConfig running, const SlurmConf& file,
                            const std::string& path);

/// Returns the settings that matter to Swell and differ between the file and the running slurmctld,
/// each as "Key=value (it runs with value)".
std::vector<std::string> not_yet_running(const slurm::ControllerConfig& file,
                                         const slurm::ControllerConfig& running,
                                         const slurm::SiteConfig& site_of_file,
                                         const slurm::SiteConfig& site_running);

}  // namespace swell::tools::doctor
