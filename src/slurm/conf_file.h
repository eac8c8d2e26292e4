// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/result.h"

namespace swell::slurm {

/// Contents of slurm.conf, which may be newer than what slurmctld runs with.
struct SlurmConf {
  /// Values by key in lower case, of lines with one key only: no nodes, no partitions.
  std::map<std::string, std::string> values;
  std::vector<std::string> hosts, addresses;  ///< values of SlurmctldHost, primary first

  const std::string* find(const std::string& key) const;

  /// Reads a file and what it includes. The error names the file that cannot be read and why.
  static Result<SlurmConf> load(const std::string& path);
};

}  // namespace swell::slurm
