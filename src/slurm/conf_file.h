// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace swell::slurm {

struct Setting {
  std::string key, value;
};
/// Removes the first setting of a configuration file's line, and returns it; nothing if there is
/// none left. Reads like Slurm: blanks may stand around "=", a value with blanks is in quotes, and
/// a line may have several settings. REQUIRES: the line has no comment.
std::optional<Setting> next_setting(std::string_view& line);

/// Contents of slurm.conf, which may be newer than the configuration of the running slurmctld.
struct SlurmConf {
  /// Values by key in lower case, without those of nodes and partitions.
  std::map<std::string, std::string> values;
  std::vector<std::string> hosts, addresses;  ///< values of SlurmctldHost, primary first

  const std::string* find(const std::string& key) const;

  /// Reads a file and the files that it includes. The error names the file that cannot be read, and
  /// why.
  static Result<SlurmConf> load(const std::string& path);
};

}  // namespace swell::slurm
