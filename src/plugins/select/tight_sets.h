// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <vector>

namespace swell::select {

/// What one leaf switch (or block) has for the job that is being placed, in nodes.
struct LeafCount {
  int idle = 0;    ///< candidates that nobody uses
  int usable = 0;  ///< all candidates, those that are used in part or in whole too
  int chosen = 0;  ///< those that cons_tres took when it had all candidates
  int partly = 0;  ///< of these, those that others use too
};

/// Groups of leaves by level, lowest first: what is under one switch of the second level, of the
/// third, ... The last level is one group of all leaves.
using LeafGroups = std::vector<std::vector<std::vector<int>>>;

/// The fewest leaves that have `wanted` idle nodes: within the lowest group that has them, and of
/// equally many those that leave the fewest idle nodes over. Empty where there are none.
std::vector<int> idle_cover(const std::vector<LeafCount>& counts, const LeafGroups& groups,
                            int wanted);

/// Sets of fewer leaves than cons_tres chose from that may hold `wanted` nodes of which `max_idle`
/// at most are idle: the smallest first, of one size those that hold them for sure, then those that
/// it took most nodes of, then those that leave the fewest idle nodes over. At most `max` sets; the
/// first that is sure is the last. Within a set the leaves with the fewest idle nodes stand first.
std::vector<std::vector<int>> fewer_leaves(const std::vector<LeafCount>& counts, int wanted,
                                           int max_idle, std::size_t max);

}  // namespace swell::select
