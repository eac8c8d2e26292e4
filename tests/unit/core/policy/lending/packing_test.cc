// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/lending/packing.h"

#include <criterion/criterion.h>

#include "support/views.h"

using namespace swell::policy;
using namespace support;

namespace {

/// Returns the idle resources of each node of the view.
std::vector<Resources> idle(const ClusterView& view) {
  std::vector<Resources> available;
  for (const NodeView& node : view.nodes) available.push_back(node.free);
  return available;
}

std::vector<NodeIndex> nodes_of(const std::optional<std::vector<Share>>& shares) {
  std::vector<NodeIndex> nodes;
  if (shares)
    for (const Share& share : *shares) nodes.push_back(share.node);
  return nodes;
}

using Nodes = std::vector<NodeIndex>;

}  // namespace

Test(packing, nodes_are_taken_as_listed_or_as_preferred) {
  const ClusterView view = idle_cluster(3);
  cr_assert_eq(nodes_of(place(pending(1, 2, 4), view, idle(view))), (Nodes{0, 1}));
  cr_assert_eq(nodes_of(place(pending(1, 2, 4), view, idle(view), {2, 0, 1})), (Nodes{2, 0}));
}

Test(packing, a_node_that_lacks_any_resource_is_passed_over) {
  ClusterView view = idle_cluster(4);
  view.nodes[0].free.gpus = 3;
  view.nodes[1].free.cpus = 3;
  view.nodes[2].free.memory_mib = 999;
  cr_assert_eq(nodes_of(place(pending(1, 1, 4), view, idle(view))), (Nodes{3}));
}

Test(packing, too_few_nodes_are_no_place_at_all) {
  ClusterView view = idle_cluster(2);
  view.nodes[1].free.gpus = 3;
  cr_assert_not(place(pending(1, 2, 4), view, idle(view)).has_value());
}

Test(packing, the_gpu_type_counts_only_for_who_needs_gpus) {
  ClusterView view = idle_cluster(2);
  view.nodes[0].gpu_type = "a100";
  cr_assert_eq(nodes_of(place(pending(1, 1, 1), view, idle(view))), (Nodes{1}));
  cr_assert_eq(nodes_of(place(pending(1, 1, 0), view, idle(view))), (Nodes{0}));
}

Test(packing, excluded_nodes_are_never_used_and_required_ones_always) {
  const ClusterView view = idle_cluster(3);
  PendingDemand demand = pending(1, 2, 4);
  demand.excluded_nodes = {0};
  demand.required_nodes = {2};
  cr_assert_eq(nodes_of(place(demand, view, idle(view))), (Nodes{2, 1}));
  demand.excluded_nodes = {2};
  cr_assert_not(place(demand, view, idle(view)).has_value(), "what is required is excluded");
}

Test(packing, a_required_node_that_is_full_leaves_no_place) {
  ClusterView view = idle_cluster(2);
  view.nodes[1].free.gpus = 0;
  PendingDemand demand = pending(1, 1, 4);
  demand.required_nodes = {1};
  cr_assert_not(place(demand, view, idle(view)).has_value());
}

Test(packing, whole_nodes_must_be_idle_and_are_taken_whole) {
  ClusterView view = idle_cluster(2);
  view.nodes[0].free.cpus -= 1;
  PendingDemand demand = pending(1, 1, 2);
  demand.whole_nodes = true;
  const auto shares = place(demand, view, idle(view));
  cr_assert_eq(nodes_of(shares), (Nodes{1}));
  cr_assert(shares->front().taken == view.nodes[1].total);
}

Test(packing, a_sum_over_nodes_is_gathered_from_as_many_as_it_takes) {
  ClusterView view = idle_cluster(3);
  view.nodes[0].free.gpus = 3;
  view.nodes[1].free.gpus = 0;
  PendingDemand demand = pending(1, 1, 0);
  demand.max_nodes = 3;
  demand.in_all.gpus = 9;
  const auto shares = place(demand, view, idle(view));
  cr_assert_eq(nodes_of(shares), (Nodes{0, 2}), "a node without idle GPUs brings nothing");
  cr_assert_eq(shares->at(0).taken.gpus, 3);
  cr_assert_eq(shares->at(1).taken.gpus, 6);
  demand.max_nodes = 1;
  cr_assert_not(place(demand, view, idle(view)).has_value());
}
