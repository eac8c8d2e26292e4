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
/// The setting at the beginning of a line of a configuration file, which loses it; nothing: there
/// is none more. As Slurm reads them: blanks may stand around "=", a value with blanks in quotes,
/// and several on a line. REQUIRES: the line has no comment.
std::optional<Setting> next_setting(std::string_view& line);

/// Contents of slurm.conf, which may be newer than what slurmctld runs with.
struct SlurmConf {
  /// Values by key in lower case: no nodes, no partitions.
  std::map<std::string, std::string> values;
  std::vector<std::string> hosts, addresses;  ///< values of SlurmctldHost, primary first

  const std::string* find(const std::string& key) const;

  /// Reads a file and what it includes. The error names the file that cannot be read and why.
  static Result<SlurmConf> load(const std::string& path);
};

}  // namespace swell::slurm
