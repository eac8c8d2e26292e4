// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/fabric_source.h"

#include <criterion/criterion.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "support/fabrics.h"

using namespace swell;
using slurm::FabricFiles;
using slurm::FabricSource;

namespace {

std::vector<slurm::NodeRecord> four_nodes() {
  std::vector<slurm::NodeRecord> nodes;
  for (int i = 0; i < 4; ++i) {
    slurm::NodeRecord node;
    node.name = "n" + std::to_string(i + 1);
    node.gpus = {{8, "h100", ""}};
    node.extra = cluster::write_extra("", test::dgx(i < 2 ? "a" : "b")).value();
    nodes.push_back(std::move(node));
  }
  return nodes;
}

struct Folder {
  std::string path =
      std::filesystem::temp_directory_path() / ("swell-fabric-" + std::to_string(getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const char* name, const char* text) const { std::ofstream(path + "/" + name) << text; }
  FabricFiles files() const { return {path + "/topology.conf", path + "/swell_calibration.json"}; }
};

}  // namespace

Test(fabric_source, is_made_anew_only_where_something_changed) {
  FabricSource source(nullptr);
  std::vector<slurm::NodeRecord> nodes = four_nodes();
  const auto first = source.update(nodes, 1000);
  cr_assert_eq(first->fabric.distance(0, 1), 1);
  cr_assert_eq(source.update(nodes, 2000), first);
  nodes[1].extra = cluster::write_extra("", test::dgx("b")).value();
  cr_assert_eq(source.update(nodes, 2000)->fabric.distance(0, 1), 2);
  nodes.pop_back();
  cr_assert_eq(source.update(nodes, 2000)->fabric.size(), 3);
}

Test(fabric_source, bad_text_is_noted_and_passed_over) {
  const Folder folder;
  folder.write("topology.conf", "SwitchName=a Switches=b\n");
  folder.write("swell_calibration.json", "{");
  FabricSource source([&] { return Result<FabricFiles>(folder.files()); });
  std::vector<slurm::NodeRecord> nodes = four_nodes();
  nodes[0].extra = "{\"swell\":7}";
  nodes[1].extra = "{\"swell\":{\"v\":99}}";
  const auto known = source.update(nodes, 1000);
  cr_assert_eq(known->fabric.distance(2, 3), 1);
  cr_assert_eq(known->fabric.distance(0, 1), 2);
  cr_assert_eq(known->notes.size(), 4u);
  cr_assert_eq(known->notes[0],
               "Extra of n1: Extra's \"swell\": a node's description is a JSON object");
}

Test(fabric_source, garbage_in_every_node_is_noted_in_a_few_words) {
  std::vector<slurm::NodeRecord> nodes = four_nodes();
  for (slurm::NodeRecord& node : nodes) node.extra = "{\"swell\":7}";
  const auto known = FabricSource(nullptr).update(nodes, 1000);
  cr_assert_eq(known->notes.size(), 4u);
  cr_assert_eq(known->notes.back(), "Extra of 1 more nodes cannot be read");
}

Test(fabric_source, a_topology_conf_that_changes_is_read_again) {
  const Folder folder;
  folder.write("topology.conf", "SwitchName=s Nodes=n[1-2]\nSwitchName=t Nodes=n[3-4]\n");
  FabricSource source([&] { return Result<FabricFiles>(folder.files()); });
  cr_assert_eq(source.update(four_nodes(), 1000)->fabric.distance(0, 2), 2);
  folder.write("topology.conf", "SwitchName=s Nodes=n[1-4]\n");
  cr_assert_eq(source.update(four_nodes(), 1010)->fabric.distance(0, 2), 2,
               "not looked at every round");
  cr_assert_eq(source.update(four_nodes(), 1100)->fabric.distance(0, 2), 1);
}

Test(fabric_source, a_topology_conf_that_slurm_does_not_use_does_not_count) {
  const Folder folder;
  folder.write("topology.conf", "SwitchName=s Nodes=n[1-4]\n");
  FabricSource source([&] {
    return Result<FabricFiles>(FabricFiles{"", folder.files().calibration});
  });
  const auto known = source.update(four_nodes(), 1000);
  cr_assert_eq(known->fabric.distance(0, 2), 2);
  cr_assert(known->notes.empty());
}

Test(fabric_source, one_that_slurm_uses_and_that_is_not_there_is_noted) {
  FabricSource source([] {
    return Result<FabricFiles>(FabricFiles{"/nowhere/topology.conf", ""});
  });
  const auto known = source.update(four_nodes(), 1000);
  cr_assert_eq(known->fabric.distance(0, 1), 1);
  cr_assert_eq(known->notes.size(), 1u);
  cr_assert_eq(known->notes[0],
               "/nowhere/topology.conf: it cannot be read, though TopologyPlugin uses it");
}

Test(fabric_source, slurmctld_that_does_not_answer_is_asked_again) {
  int asked = 0;
  FabricSource source([&]() -> Result<FabricFiles> {
    if (++asked == 1) return Error("no answer");
    return FabricFiles{};
  });
  cr_assert_eq(source.update(four_nodes(), 1000)->notes.size(), 1u);
  cr_assert_eq(source.update(four_nodes(), 1100)->notes.size(), 0u);
}

Test(fabric_source, topologies_that_shape_jobs_are_slurms_own_matter) {
  const Folder folder;
  const std::string here = folder.path + "/";
  for (const char* plugin :
       {"", "(null)", "topology/none", "topology/default", "topology/flat", "topology/tree"})
    cr_assert_not(slurm::shapes_jobs(plugin, here), "%s", plugin);
  for (const char* plugin : {"topology/block", "topology/ring", "topology/torus3d",
                             "topology/3d_torus", "topology/of_next_year"})
    cr_assert(slurm::shapes_jobs(plugin, here), "%s", plugin);
  folder.write("topology.yaml", "- topology: rings\n");
  cr_assert(slurm::shapes_jobs("topology/tree", here));
}

Test(fabric_source, as_long_as_the_topology_is_not_known_it_may_shape_jobs) {
  int asked = 0;
  FabricSource source([&]() -> Result<FabricFiles> {
    if (++asked == 1) return Error("no answer");
    return FabricFiles{"", "", asked == 3};
  });
  cr_assert(source.update(four_nodes(), 1000)->slurm_shapes_jobs);
  cr_assert_not(source.update(four_nodes(), 1100)->slurm_shapes_jobs);
  cr_assert(source.update(four_nodes(), 1200)->slurm_shapes_jobs);
}

Test(fabric_source, devices_are_apart_where_the_cgroup_plugin_constrains_them) {
  using slurm::devices_apart;
  const char* const kTask = "task/affinity,task/cgroup";
  cr_assert(devices_apart(kTask, "# our nodes\nConstrainCores=yes\nConstrainDevices=yes\n"));
  cr_assert(devices_apart(kTask, "constraindevices = YES # of GPUs"));
  cr_assert(devices_apart(kTask, "ConstrainDevices        = yes\n"), "as scontrol prints it");
  cr_assert(devices_apart(kTask, "ConstrainCores=yes ConstrainDevices=\"yes\"\r\n"));
  cr_assert_not(devices_apart(kTask, "#ConstrainDevices=yes\n"));
  cr_assert_not(devices_apart(kTask, "ConstrainDevices=yes\nConstrainDevices=no\n"));
  cr_assert_not(devices_apart(kTask, ""));
  cr_assert_not(devices_apart("task/affinity", "ConstrainDevices=yes"), "nobody looks at it");

  FabricFiles files;
  FabricSource source([&] { return Result<FabricFiles>(files); });
  cr_assert_not(
      source.update(four_nodes(), 1000)->fabric.to_cluster("c")->interconnect().devices_apart);
  files.devices_apart = true;
  cr_assert(
      source.update(four_nodes(), 1100)->fabric.to_cluster("c")->interconnect().devices_apart);
}
