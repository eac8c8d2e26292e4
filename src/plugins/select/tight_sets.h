// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <vector>

namespace swell::select {

/// Nodes of one leaf switch (or block), counted for the job that is being placed.
struct LeafCount {
  int idle = 0;    ///< candidates without jobs
  int usable = 0;  ///< all candidates, including those with other jobs
  int chosen = 0;  ///< nodes that cons_tres chose from all candidates
  int partly = 0;  ///< nodes of `chosen` that have other jobs too
};

/// Groups of leaves by level, lowest first: the leaves under one switch of the second level, of the
/// third, ... The last level is one group of all leaves.
using LeafGroups = std::vector<std::vector<std::vector<int>>>;

/// Returns the fewest leaves that have `wanted` idle nodes: within the lowest group that has
/// enough, and among sets of equal size the one that leaves the fewest idle nodes over. Empty if
/// there are not enough.
std::vector<int> idle_cover(const std::vector<LeafCount>& counts, const LeafGroups& groups,
                            int wanted);

/// Returns sets of fewer leaves than cons_tres chose that may have `wanted` nodes, at most
/// `max_idle` of them idle. Smaller sets come first; among sets of equal size, first those that
/// certainly have the nodes, then those with the most chosen nodes, then those that leave the
/// fewest idle nodes over. At most `max` sets, ending with the first certain one. Within a set the
/// leaves with the fewest idle nodes come first.
std::vector<std::vector<int>> fewer_leaves(const std::vector<LeafCount>& counts, int wanted,
                                           int max_idle, std::size_t max);

}  // namespace swell::select
