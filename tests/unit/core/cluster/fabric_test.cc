// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/cluster/fabric.h"

#include <chrono>
#include <criterion/criterion.h>

#include "support/fabrics.h"

using namespace swell;
using namespace swell::cluster;

namespace {

std::vector<FabricNode> silent_nodes(int count) {
  std::vector<FabricNode> nodes;
  for (int i = 0; i < count; ++i)
    nodes.push_back({fmt::format("n{}", i + 1), "h100", 8, std::nullopt});
  return nodes;
}
const char* kTree =
    "SwitchName=l1 Nodes=n[1-2]\nSwitchName=l2 Nodes=n[3-4]\nSwitchName=l3 Nodes=n[5-6]\n"
    "SwitchName=p1 Switches=l[1-2]\nSwitchName=top Switches=p1,l3\n";

}  // namespace

Test(fabric, leaves_that_nodes_publish_make_racks) {
  const Fabric fabric = Fabric::make(test::dgx_nodes(4, 4));
  cr_assert_eq(fabric.levels(), 1);
  cr_assert_eq(fabric.distance(0, 0), 0);
  cr_assert_eq(fabric.distance(0, 3), 1);
  cr_assert_eq(fabric.distance(0, 4), 2);
  cr_assert_eq(fabric.distance_source(0, 4), Source::description);
  cr_assert_eq(distance_name(fabric, 1), "same switch");
  cr_assert_eq(distance_name(fabric, 2), "across");
  cr_assert_eq(groups_of(fabric, 1).size(), 4u);
}

Test(fabric, a_tree_counts_levels_also_where_branches_differ_in_depth) {
  const Fabric fabric = Fabric::make(silent_nodes(7), SlurmTopology::parse(kTree).value());
  cr_assert_eq(fabric.levels(), 3);
  cr_assert_eq(fabric.distance(0, 1), 1);
  cr_assert_eq(fabric.distance(0, 2), 2);
  cr_assert_eq(fabric.distance(0, 4), 3);
  cr_assert_eq(fabric.distance(4, 5), 1);
  cr_assert_eq(fabric.distance(0, 6), 4, "n7 is nowhere: farthest");
  cr_assert_eq(fabric.distance_source(0, 1), Source::topology_conf);
  cr_assert_eq(fabric.distance_source(0, 6), Source::class_default);
  cr_assert_eq(fabric.group_name(fabric.group(0, 2)), "p1");
}

Test(fabric, blocks_nest) {
  const auto topology = SlurmTopology::parse(
      "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockName=b3 Nodes=n[5-6]\nBlockSizes=2,4\n");
  const Fabric fabric = Fabric::make(silent_nodes(6), *topology);
  cr_assert_eq(fabric.distance(0, 1), 1);
  cr_assert_eq(fabric.distance(0, 2), 2);
  cr_assert_eq(fabric.distance(0, 4), 3);
  cr_assert_eq(distance_name(fabric, 1), "same block");
  cr_assert_eq(groups_of(fabric, 2).size(), 2u);
}

Test(fabric, topology_conf_decides_and_a_node_it_lacks_joins_by_its_published_switch) {
  auto nodes = test::dgx_nodes(1, 3);  // all publish leaf1
  nodes[2].description->leaf = "l2";
  nodes.push_back({"n9", "h100", 8, test::dgx("l2")});
  const Fabric fabric = Fabric::make(
      nodes,
      SlurmTopology::parse(
          "SwitchName=l1 Nodes=n1\nSwitchName=l2 Nodes=n[2-3]\nSwitchName=s Switches=l[1-2]\n")
          .value());
  cr_assert_eq(fabric.distance(0, 1), 2, "the file parts what the descriptions join");
  cr_assert_eq(fabric.distance(1, 3), 1, "n9 is in no line, but publishes l2");
  cr_assert_eq(fabric.distance(0, 3), 2);
  cr_assert_eq(fabric.distance_source(0, 3), Source::description);
}

Test(fabric, nothing_known_is_one_defined_class) {
  const Fabric fabric = Fabric::make(silent_nodes(3));
  cr_assert_eq(fabric.levels(), 0);
  cr_assert_eq(fabric.distance(0, 2), 1);
  const Figure between = fabric.bandwidth(0, 2);
  cr_assert_eq(between.source, Source::class_default);
  cr_assert_eq(between.bytes_per_s, 1.25e9);
  cr_assert_eq(fabric.bandwidth(GpuRef{0, 0}, GpuRef{0, 1}).bytes_per_s, 450e9, "the type's link");
  cr_assert(fabric.to_cluster("c").ok());
}

Test(fabric, bandwidth_comes_from_the_best_source_there_is) {
  Calibration calibration;
  calibration.classes = {{2, 90e9, 5e-6, 0.1, 3, {}}};
  calibration.pairs[{"n1", "n2"}] = 33e9;
  const Fabric fabric = Fabric::make(test::dgx_nodes(2, 3), {}, calibration);
  cr_assert_eq(fabric.bandwidth(GpuRef{0, 0}, GpuRef{0, 7}).bytes_per_s, 450e9);
  cr_assert_eq(fabric.bandwidth(0, 2).bytes_per_s, 400e9, "all eight ports");
  cr_assert_eq(fabric.bandwidth(GpuRef{0, 3}, GpuRef{2, 5}).bytes_per_s, 50e9,
               "the ports beside the GPUs");
  cr_assert_eq(fabric.bandwidth(0, 2).source, Source::description);
  cr_assert_eq(fabric.bandwidth(0, 1).bytes_per_s, 33e9);
  cr_assert_eq(fabric.bandwidth(0, 1).source, Source::measured);
  cr_assert_eq(fabric.bandwidth(0, 3).bytes_per_s, 90e9);
  const Fabric uncalibrated = Fabric::make(test::dgx_nodes(2, 3));
  cr_assert_eq(uncalibrated.bandwidth(0, 3).bytes_per_s, 200e9, "half is assumed across");
}

Test(fabric, the_planner_gets_the_same_figures) {
  Calibration calibration;
  calibration.classes = {{3, 11e9, 0, 0, 1, {}}};
  auto nodes = test::dgx_nodes(1, 6);
  nodes.push_back({"login", "", 0, std::nullopt});
  const Fabric fabric = Fabric::make(nodes, SlurmTopology::parse(kTree).value(), calibration);
  const Cluster cluster = fabric.to_cluster("c").value();
  cr_assert_eq(cluster.nodes().size(), 6u, "no GPUs on login");
  cr_assert_not(cluster.interconnect().is_regular());
  for (int a = 0; a < 6; ++a)
    for (int b = 0; b < 6; ++b)
      cr_assert_eq(cluster.node_bandwidth(a, b), fabric.bandwidth(a, b).bytes_per_s, "%d %d: %g %g",
                   a, b, cluster.node_bandwidth(a, b), fabric.bandwidth(a, b).bytes_per_s);
  cr_assert_eq(Cluster::from_json(cluster.to_json())->to_json().dump(), cluster.to_json().dump());
  cr_assert(Fabric::make(test::dgx_nodes(2, 2)).to_cluster("c")->interconnect().is_regular(),
            "racks alone keep the planner's fast way");
}

// H100s behind PCIe and one card: what the catalogue says of NVLink is not so there.
Test(fabric, the_planner_gets_the_links_and_cards_that_a_node_publishes) {
  auto nodes = test::dgx_nodes(1, 2);
  nodes[1].description->usual_link = {0, 0, LinkKind::pcie, 55e9};
  nodes[1].description->links.clear();
  nodes[1].description->ports.resize(2);
  const Cluster cluster = Fabric::make(nodes).to_cluster("c").value();
  cr_assert_eq(cluster.effective_bandwidth({0, 0}, {0, 1}), 450e9);
  cr_assert_eq(cluster.effective_bandwidth({1, 0}, {1, 1}), 55e9);
  cr_assert_eq(network_reach(cluster.node(0), 1), 50e9, "one of eight cards");
  cr_assert_eq(network_reach(cluster.node(1), 1), 50e9, "one of two");
  cr_assert_eq(network_reach(cluster.node(1), 8), 100e9);
}

Test(fabric, a_type_without_figures_is_named) {
  auto nodes = silent_nodes(1);
  nodes[0].gpu_type = "mi300";
  const auto refused = Fabric::make(nodes).to_cluster("c");
  cr_assert_not(refused.ok());
  cr_assert_eq(refused.error().message(),
               "node n1: GPU type \"mi300\" is not in the catalogue; describe it");
  GpuType mi300 = *find_gpu_type("h100");
  mi300.name = "mi300";
  cr_assert(Fabric::make(nodes).to_cluster("c", {mi300}).ok());
}

Test(fabric, nearness_is_the_least_distance_to_any) {
  const Fabric fabric = Fabric::make(silent_nodes(7), SlurmTopology::parse(kTree).value());
  const Nearness near(fabric, {1, 4, -1});
  for (int node = 0; node < 7; ++node)
    cr_assert_eq(near.distance(node), std::min(fabric.distance(node, 1), fabric.distance(node, 4)),
                 "%d", node);
}

Test(fabric, ten_thousand_nodes_are_no_matter) {
  const auto begin = std::chrono::steady_clock::now();
  const Fabric fabric = Fabric::make(test::dgx_nodes(625, 16));
  long sum = 0;
  for (int job = 0; job < 100; ++job) {
    const Nearness near(fabric, {job * 16, job * 16 + 1});
    for (int node = 0; node < fabric.size(); ++node) sum += near.distance(node);
  }
  cr_assert_gt(sum, 0);
  cr_assert_eq(groups_of(fabric, 1).size(), 625u);
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  cr_assert_lt(took, 5, "%g s", took);
}

Test(calibration, round_trips_and_names_errors) {
  Calibration made;
  made.date = "2026-01-02T03:04:05Z";
  made.method = "tcp";
  made.classes = {{1, 1e9, 2e-5, 0.25, 4, {{1024, 1e7, 2e-5}}}};
  made.pairs[{"a", "b"}] = 2e9;
  cr_assert_eq(Calibration::from_json(made.to_json())->to_json().dump(), made.to_json().dump());
  for (
      const char* bad :
      {"7", "{}", R"({"version":1,"classes":[{"distance":-1,"gbytes_per_s":1}]})",
       R"({"version":1,"classes":[{"distance":1}]})",
       R"({"version":1,"classes":[{"distance":1,"gbytes_per_s":1},{"distance":1,"gbytes_per_s":1}]})",
       R"({"version":1,"pairs":[{"between":["a"],"gbytes_per_s":1}]})"})
    cr_assert_not(Calibration::from_json(*Json::parse(bad)).ok(), "%s", bad);
}
