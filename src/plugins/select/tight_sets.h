// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <vector>

namespace swell::select {

/// Nodes of one leaf switch (or block), counted for the job that is being placed.
struct LeafCount {
  int idle = 0;    ///< candidates that no job uses
  int usable = 0;  ///< all candidates, also those that other jobs use
  int chosen = 0;  ///< nodes that cons_tres took when it had all candidates
  int partly = 0;  ///< nodes of `chosen` that other jobs use too
};

/// Groups of leaves by level, lowest first: the leaves under one switch of the second level, of the
/// third, ... The last level is one group of all leaves.
using LeafGroups = std::vector<std::vector<std::vector<int>>>;

/// The fewest leaves that have `wanted` idle nodes: within the lowest group that has them, and
/// among equally many leaves those that leave the fewest idle nodes over. Empty where there are
/// none.
std::vector<int> idle_cover(const std::vector<LeafCount>& counts, const LeafGroups& groups,
                            int wanted);

/// Sets of fewer leaves than cons_tres chose that may hold `wanted` nodes, at most `max_idle` of
/// them idle. Order: the smallest sets first; of one size first those that certainly hold the
/// nodes, then those with most of the nodes chosen, then those that leave the fewest idle nodes
/// over. At most `max` sets, ending with the first certain one. Within a set the leaves with the
/// fewest idle nodes come first.
std::vector<std::vector<int>> fewer_leaves(const std::vector<LeafCount>& counts, int wanted,
                                           int max_idle, std::size_t max);

}  // namespace swell::select
