// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace swell::cluster {

/// Slurm's topology.conf as one tree of switches or blocks. Made from the file's text; read by
/// Fabric.
struct SlurmTopology {
  enum class Kind { none, tree, block };
  struct Group {
    /// SwitchName or BlockName; the name of a nested block is made of its first and last block.
    std::string name;
    int parent = -1;                 ///< index into groups; -1: no parent
    int height = 1;                  ///< 1: holds nodes; otherwise 1 + the maximum height below it
    std::vector<std::string> nodes;  ///< nodes connected directly to it
  };
  Kind kind = Kind::none;
  std::vector<Group> groups;
  std::vector<std::string> notes;  ///< lines that were skipped, one sentence each

  /// Reads topology/tree (SwitchName, Nodes, Switches) and topology/block (BlockName, Nodes,
  /// BlockSizes; larger sizes make nested blocks of consecutive ones). Empty text gives kind none.
  /// Skips a topology.yaml with a note. Errors name line and value: a switch that does not exist,
  /// is its own parent, or is named twice.
  static Result<SlurmTopology> parse(std::string_view text);
};

}  // namespace swell::cluster
