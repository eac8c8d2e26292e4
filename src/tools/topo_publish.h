// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "core/cluster/node_description.h"
#include "core/result.h"

namespace swell::tools {

struct PublishOptions {
  std::string node;         ///< empty: the only one on this host
  std::string description;  ///< file; empty: what was found
  int retry_s = 0;
  int watch = -1;  ///< file descriptor; -1: none
};

/// A description in any of the forms that `swell topo` writes: compact, under "swell" as in Extra,
/// or under "published" as --json prints it.
Result<cluster::NodeDescription> described(const std::string& json);

/// Merges the description into the node's Extra; does nothing where it is there already. Tries
/// again, with growing pauses, until retry_s are over. Returns the program's exit status.
int publish(const cluster::NodeDescription& node, const PublishOptions& options);

}  // namespace swell::tools
