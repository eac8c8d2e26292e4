// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "core/result.h"

/// One node's Extra field, over the public API. Used by what publishes a node's topology.
namespace swell::slurm {

/// The node's name in Slurm and what its Extra holds now.
struct NodeExtra {
  std::string node;
  std::string extra;
};

/// Of the node `name`, or where that is empty of the only node on the machine `host`.
Result<NodeExtra> load_node_extra(const std::string& name, const std::string& host);

/// Takes an operator of Slurm: root, SlurmUser, ...
Result<void> set_node_extra(const std::string& node, const std::string& extra);

}  // namespace swell::slurm
