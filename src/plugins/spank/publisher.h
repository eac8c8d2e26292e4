// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <vector>

namespace swell::spank {

/// The plugin's arguments in plugstack.conf.
struct Settings {
  bool publish = true;  ///< topology=on|off
  /// A file to publish instead of the detected topology; %n: the node's name.
  std::string topo_json;
  int retry_s = 600;  ///< topo_retry=SECONDS: how long to wait for slurmctld
  /// control_port=PORT: value for swell.conf on configless nodes; 0: not given.
  int control_port = 0;

  /// Sets what the arguments say; returns the errors, one sentence each. A wrong argument changes
  /// nothing.
  std::vector<std::string> read(int count, char** arguments);
};

/// Options of slurmd's own command line: "slurmd -D -f CONF -N NAME".
struct SlurmdOptions {
  std::string node, conf;  ///< empty: not given
  static SlurmdOptions parse(const std::vector<std::string>& arguments);
};

/// Starts `program` topo --publish ..., detached from slurmd, and returns at once. The program ends
/// when it has published, when topo_retry is over, or when slurmd has ended. Returns the error, or
/// nothing.
std::string start_publisher(const Settings& settings, const std::string& program);

}  // namespace swell::spank
