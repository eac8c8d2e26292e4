// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/select/tight_sets.h"

#include <criterion/criterion.h>

#include "plugins/select/blocks.h"
#include "support/fabrics.h"

using namespace swell;
using namespace swell::select;

namespace {

using Leaves = std::vector<int>;

/// Leaves with so many idle nodes, all under one switch, or under two of the same size.
std::vector<LeafCount> idle(std::initializer_list<int> numbers) {
  std::vector<LeafCount> counts;
  for (int number : numbers) counts.push_back({number, number, 0});
  return counts;
}
LeafGroups one_spine(int leaves) {
  LeafGroups groups(2);
  groups[1].emplace_back();
  for (int leaf = 0; leaf < leaves; ++leaf) {
    groups[0].push_back({leaf});
    groups[1][0].push_back(leaf);
  }
  return groups;
}

}  // namespace

Test(tight_sets, the_smallest_leaf_that_is_large_enough) {
  cr_assert_eq(idle_cover(idle({8, 5, 4, 6}), one_spine(4), 5), (Leaves{1}));
}

Test(tight_sets, the_fullest_leaves_and_then_the_smallest_that_does) {
  cr_assert_eq(idle_cover(idle({3, 8, 2, 7}), one_spine(4), 10), (Leaves{1, 2}));
}

Test(tight_sets, nothing_where_too_few_are_idle) {
  cr_assert(idle_cover(idle({3, 3}), one_spine(2), 7).empty());
}

Test(tight_sets, the_lowest_switch_that_has_enough_wins_over_fewer_leaves_far_apart) {
  LeafGroups groups = one_spine(4);
  groups.insert(groups.begin() + 1, {{0, 1}, {2, 3}});
  // 6 nodes: leaves 0 and 3 would do with nothing left over, but meet only at the top.
  cr_assert_eq(idle_cover(idle({4, 3, 1, 2}), groups, 6), (Leaves{0, 1}));
}

Test(tight_sets, fewer_leaves_than_were_chosen_the_likeliest_first) {
  // idle, usable, chosen, of these partly used
  std::vector<LeafCount> counts{{0, 4, 1, 1}, {1, 4, 2, 2}, {0, 1, 1, 1}, {0, 4, 0, 0}};
  const auto sets = fewer_leaves(counts, 4, 0, 20);
  cr_assert_geq(sets.size(), 4);
  cr_assert_eq(sets[0], (Leaves{0}));
  cr_assert_eq(sets[1], (Leaves{3}));
  cr_assert_eq(sets[2], (Leaves{0, 1}));
  for (const Leaves& set : sets) cr_assert_lt(set.size(), 3);
  cr_assert_eq(fewer_leaves(counts, 4, 0, 2).size(), 2);
}

Test(tight_sets, idle_nodes_count_only_as_far_as_they_may_be_broken_into) {
  std::vector<LeafCount> counts{{4, 4, 1, 0}, {1, 2, 1, 1}, {0, 1, 1, 1}};
  for (const Leaves& set : fewer_leaves(counts, 3, 1, 20)) cr_assert_neq(set, (Leaves{0}));
}

Test(tight_sets, a_set_that_holds_them_for_sure_ends_the_list) {
  // Two nodes that are partly used in leaf 0, one idle node in each of two others; leaf 0 has an
  // idle one itself.
  std::vector<LeafCount> counts{{1, 3, 2, 2}, {2, 2, 1, 0}, {3, 3, 1, 0}};
  const auto sets = fewer_leaves(counts, 4, 2, 20);
  cr_assert_eq(sets.back(), (Leaves{0, 1}));
  cr_assert_eq(fewer_leaves(counts, 4, 2, 1).back(), (Leaves{0, 1}));
}

Test(blocks, leaves_are_the_switches_that_nodes_publish) {
  const auto blocks = blocks_from(cluster::Fabric::make(test::dgx_nodes(3, 2)),
                                  std::vector<NodeKind>(6, {512000, 1}));
  cr_assert(blocks != nullptr);
  cr_assert_eq(blocks->leaves, (std::vector<std::string>{"n1,n2", "n3,n4", "n5,n6"}));
  cr_assert_eq(blocks->nodes, 6);
  cr_assert_eq(blocks->alike, (std::vector<std::string>{"n1,n2,n3,n4,n5,n6"}));
  cr_assert_eq(blocks->groups.back(), (std::vector<Leaves>{{0, 1, 2}}));
}

Test(blocks, switches_above_the_leaves_group_them) {
  const auto tree = cluster::SlurmTopology::parse(
      "SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-4]\nSwitchName=c Nodes=n[5-6]\n"
      "SwitchName=s1 Switches=a,b\nSwitchName=s2 Switches=c\nSwitchName=top Switches=s[1-2]\n");
  cr_assert(tree.ok());
  const auto blocks = blocks_from(cluster::Fabric::make(test::dgx_nodes(3, 2), *tree),
                                  {{1, 1}, {1, 1}, {1, 1}, {2, 1}, {2, 1}, {1, 7}});
  cr_assert(blocks != nullptr);
  cr_assert_eq(blocks->groups.at(1), (std::vector<Leaves>{{0, 1}, {2}}));
  cr_assert_eq(blocks->alike, (std::vector<std::string>{"n1,n2,n3", "n6", "n4,n5"}));
}

Test(blocks, nothing_to_choose_without_two_leaves) {
  cr_assert_null(blocks_from(cluster::Fabric::make({}), {}).get());
  cr_assert_null(
      blocks_from(cluster::Fabric::make(test::dgx_nodes(1, 4)), std::vector<NodeKind>(4)).get());
}
