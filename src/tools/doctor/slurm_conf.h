// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/result.h"
#include "slurm/live_slurm.h"
#include "slurm/site_config.h"

namespace swell::tools::doctor {

/// slurm.conf as it stands in the file, which may be newer than what slurmctld runs with.
struct SlurmConf {
  /// Keys in lower case; lines of one key only, no nodes, no partitions.
  std::map<std::string, std::string> values;
  std::vector<std::string> hosts, addresses;  ///< of SlurmctldHost, primary first

  const std::string* find(const std::string& key) const;

  /// Reads a file and what it includes. The error names the file that cannot be read and why.
  static Result<SlurmConf> load(const std::string& path);
};

/// What slurmctld will run with once it is started on this file: `path`'s text over `running`,
/// which holds for what the file does not tell (a default PluginDir, the version).
slurm::ControllerConfig with_file(slurm::ControllerConfig running, const SlurmConf& file,
                                  const std::string& path);
slurm::SiteConfig with_file(slurm::SiteConfig running, const SlurmConf& file);

/// What bears on Swell and differs between the file and the running slurmctld: "Key=value (it runs
/// with value)" each.
std::vector<std::string> not_yet_running(const slurm::ControllerConfig& file,
                                         const slurm::ControllerConfig& running,
                                         const slurm::SiteConfig& site_of_file,
                                         const slurm::SiteConfig& site_running);

}  // namespace swell::tools::doctor
