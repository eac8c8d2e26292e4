// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace swell::cluster {

/// What Slurm's topology.conf says, as one tree of switches or blocks. Made from the file's text;
/// read by Fabric.
struct SlurmTopology {
  enum class Kind { none, tree, block };
  struct Group {
    std::string
        name;  ///< SwitchName or BlockName; of nested blocks the names of their first and last
    int parent = -1;                 ///< index into groups; -1: nothing above it
    int height = 1;                  ///< 1: holds nodes; else 1 + the greatest height below it
    std::vector<std::string> nodes;  ///< connected to it directly
  };
  Kind kind = Kind::none;
  std::vector<Group> groups;
  std::vector<std::string> notes;  ///< what was passed over, one sentence each

  /// topology/tree (SwitchName, Nodes, Switches) and topology/block (BlockName, Nodes, BlockSizes;
  /// larger sizes make nested blocks of consecutive ones). Empty text gives kind none. A
  /// topology.yaml is noted and passed over. Errors name line and value: a switch that is not
  /// there, is its own parent, is named twice.
  static Result<SlurmTopology> parse(std::string_view text);
};

}  // namespace swell::cluster
