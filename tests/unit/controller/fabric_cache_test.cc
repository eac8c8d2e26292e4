// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/fabric_cache.h"

#include <criterion/criterion.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "support/fabrics.h"

using namespace swell;
using controller::FabricCache;

namespace {

slurm::Snapshot snapshot(std::time_t taken) {
  slurm::Snapshot made;
  made.taken = taken;
  for (int i = 0; i < 4; ++i) {
    slurm::NodeRecord node;
    node.name = "n" + std::to_string(i + 1);
    node.gpus = {{8, "h100", ""}};
    node.extra = cluster::write_extra("", test::dgx(i < 2 ? "a" : "b")).value();
    made.nodes.push_back(std::move(node));
  }
  return made;
}

struct Folder {
  std::string path = std::filesystem::temp_directory_path() / ("swell-fabric-" + std::to_string(getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const char* name, const char* text) const { std::ofstream(path + "/" + name) << text; }
};

}  // namespace

Test(fabric_cache, is_made_anew_only_where_something_changed) {
  FabricCache cache("", [](const std::string&) {});
  slurm::Snapshot now = snapshot(1000);
  const auto first = cache.get(now);
  cr_assert_eq(first->distance(0, 1), 1);
  now.taken = 2000;
  cr_assert_eq(cache.get(now), first);
  now.nodes[1].extra = cluster::write_extra("", test::dgx("b")).value();
  cr_assert_eq(cache.get(now)->distance(0, 1), 2);
  now.nodes.pop_back();
  cr_assert_eq(cache.get(now)->size(), 3);
}

Test(fabric_cache, bad_text_is_said_once_and_passed_over) {
  std::vector<std::string> said;
  const Folder folder;
  folder.write("topology.conf", "SwitchName=a Switches=b\n");
  folder.write("swell_calibration.json", "{");
  FabricCache cache(folder.path, [&](const std::string& text) { said.push_back(text); });
  slurm::Snapshot now = snapshot(1000);
  now.nodes[0].extra = "{\"swell\":7}";
  now.nodes[1].extra = "{\"swell\":{\"v\":99}}";
  const auto fabric = cache.get(now);
  cr_assert_eq(fabric->distance(2, 3), 1);
  cr_assert_eq(fabric->distance(0, 1), 2);
  cache.get(now);
  cr_assert_eq(said.size(), 3u);
  cr_assert_eq(said[0], "node n1: Extra's \"swell\": a node's description is a JSON object (and 1 more nodes)");
}

Test(fabric_cache, a_topology_conf_that_changes_is_read_again) {
  const Folder folder;
  FabricCache cache(folder.path, [](const std::string&) {});
  cr_assert_eq(cache.get(snapshot(1000))->distance(0, 2), 2);
  folder.write("topology.conf", "SwitchName=s Nodes=n[1-4]\n");
  cr_assert_eq(cache.get(snapshot(1010))->distance(0, 2), 2, "not looked at every round");
  cr_assert_eq(cache.get(snapshot(1100))->distance(0, 2), 1);
}
