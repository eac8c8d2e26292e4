// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "core/result.h"

/// Access to a node's Extra field over the public API, for publishing a node's topology.
namespace swell::slurm {

/// A node's name in Slurm and its Extra field.
struct NodeExtra {
  std::string node;
  std::string extra;
};

/// Loads the Extra of node `name`; if `name` is empty, that of the only node on the machine `host`.
Result<NodeExtra> load_node_extra(const std::string& name, const std::string& host);

/// Sets a node's Extra. Needs the rights of a Slurm operator: root, SlurmUser, ...
Result<void> set_node_extra(const std::string& node, const std::string& extra);

}  // namespace swell::slurm
