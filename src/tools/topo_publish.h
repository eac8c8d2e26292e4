// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "core/cluster/node_description.h"
#include "core/result.h"

namespace swell::tools {

struct PublishOptions {
  std::string node;         ///< empty: the only node on this host
  std::string description;  ///< path; empty: describes this host
  int retry_s = 0;
  int watch = -1;  ///< file descriptor of a pipe: stops when its other end closes; -1: none
};

/// Reads a description in any of the forms that `swell topo` writes: compact, under "swell" as in
/// Extra, or under "published" as --json prints it.
Result<cluster::NodeDescription> described(const std::string& json);

/// Merges the description into the node's Extra; does nothing if it is there already. Retries with
/// growing pauses until retry_s are over. Returns the program's exit status.
int publish(const cluster::NodeDescription& node, const PublishOptions& options);

}  // namespace swell::tools
