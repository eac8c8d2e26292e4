// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/node_set.h"

#include <criterion/criterion.h>

using swell::policy::NodeIndex;
using swell::policy::NodeSet;

Test(node_set, it_has_what_was_put_into_it) {
  NodeSet set{3, 200, 64};
  cr_assert(set.contains(3) && set.contains(64) && set.contains(200));
  cr_assert_not(set.contains(4) || set.contains(63) || set.contains(1000));
  cr_assert(set.nodes() == (std::vector<NodeIndex>{3, 64, 200}));
  cr_assert(NodeSet().empty());
  cr_assert_not(NodeSet().contains(0));
}

Test(node_set, copies_share_their_memory_until_one_changes) {
  const NodeSet set{1, 2};
  NodeSet copy = set;
  cr_assert(copy.shares_with(set));
  copy.insert(2);
  cr_assert(copy.shares_with(set), "it had that");
  copy.insert(70);
  cr_assert_not(copy.shares_with(set));
  cr_assert_not(set.contains(70));
  cr_assert(copy == (NodeSet{1, 2, 70}));
}

Test(node_set, sets_are_joined_cut_and_taken_away) {
  NodeSet any{1, 100}, both{1, 100, 2}, left{1, 100, 2};
  any |= NodeSet{2};
  cr_assert(any == (NodeSet{1, 2, 100}));
  both &= NodeSet{2, 100};
  cr_assert(both == (NodeSet{2, 100}));
  both &= NodeSet{7};
  cr_assert(both.empty());
  left -= NodeSet{100};
  cr_assert(left == (NodeSet{1, 2}));
  left -= left;
  cr_assert(left.empty());
  NodeSet none;
  none &= NodeSet{1};
  none -= NodeSet{1};
  cr_assert(none.empty());
  none |= NodeSet{5};
  cr_assert(none == NodeSet{5});
}

Test(node_set, the_first_nodes_are_those_and_no_more) {
  for (const std::size_t count : {0u, 1u, 63u, 64u, 65u, 128u})
    cr_assert_eq(NodeSet::first(count).nodes().size(), count);
  cr_assert_not(NodeSet::first(65).contains(65));
}
