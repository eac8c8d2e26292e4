// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/switch_network.h"

#include <criterion/criterion.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support/fabrics.h"

using namespace swell;
using namespace swell::launcher;
using swell::test::dgx;

namespace {

namespace fs = std::filesystem;

/// A node's /sys with RDMA ports and network interfaces; the loopback's card has `beside`.
struct Sysfs {
  Sysfs() {
    folder = fs::temp_directory_path() / "swell-ports-XXXXXX";
    cr_assert_not_null(mkdtemp(folder.data()));
  }
  ~Sysfs() { fs::remove_all(folder); }
  void write(const std::string& file, const std::string& line) const {
    const fs::path path = folder + "/" + file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << line << "\n";
  }
  void rdma(const std::string& device, const std::string& state) const {
    write("class/infiniband/" + device + "/ports/1/state", state);
  }
  std::string folder;
};

/// The devices; "none": UCX is left alone.
std::string devices(const Sysfs& sysfs, const std::string& network, const std::string& ports) {
  const auto ucx = ucx_of(network, ports, "127.0.0.1", sysfs.folder);
  return ucx ? ucx->devices : "none";
}

}  // namespace

Test(switch_network, the_ports_are_those_next_to_the_worker_s_gpus) {
  const cluster::NodeDescription node = dgx();
  cr_assert_eq(ports_near(node, {0}), "mlx5_0:1");
  cr_assert_eq(ports_near(node, {6, 7}), "mlx5_6:1,mlx5_7:1");
  cluster::NodeDescription two = dgx();
  two.ports.resize(2);
  two.ports[0].nearest_gpus = {0, 1, 2, 3};
  two.ports[1].nearest_gpus = {4, 5, 6, 7};
  two.ports[1].port = 2;
  cr_assert_eq(ports_near(two, {5}), "mlx5_1:2");
  cr_assert_eq(ports_near(two, {3, 4}), "mlx5_0:1,mlx5_1:2");
  for (cluster::PortDescription& port : two.ports) port.nearest_gpus.clear();
  cr_assert_eq(ports_near(two, {5}), "mlx5_0:1,mlx5_1:2", "it does not say which is near");
  cr_assert_eq(ports_near({}, {0}), "");
}

Test(switch_network, descriptions_of_nodes_are_read_from_slurms_output) {
  const std::string extra = cluster::write_extra(R"({"site":"a, b = c"})", dgx("leaf1")).value();
  const auto found = read_descriptions(
      "NodeName=n1 Arch=x86_64 CoresPerSocket=8 \n   CPUAlloc=0 Comment=NodeName=n9\n   Extra=" +
      extra +
      "\n\nNodeName=n2 Arch=x86_64\n   State=IDLE\n\nNodeName=n3\n   Extra=of another tool\n"
      "NodeName=n4\n   Extra={\"swell\":{\"v\":1,\"leaf\":7}}\n");
  cr_assert_eq(found.size(), 1, "those that publish one");
  cr_assert(found.at("n1") == dgx("leaf1"));
  cr_assert(read_descriptions("slurm_load_node error: Unable to contact slurm controller").empty());
}

Test(switch_network, uses_the_described_ports_that_are_up) {
  unsetenv("UCX_NET_DEVICES");
  Sysfs sysfs;
  sysfs.rdma("mlx5_6", "4: ACTIVE");
  sysfs.rdma("mlx5_7", "1: DOWN");
  sysfs.write("class/net/eth3/operstate", "up");
  sysfs.write("class/net/eth4/operstate", "down");
  const std::string ports = ports_near(dgx(), {5, 6, 7});
  cr_assert_eq(devices(sysfs, "auto", ports), "mlx5_6:1");
  cr_assert_eq(devices(sysfs, "ucx", ports), "mlx5_6:1");
  cr_assert_eq(devices(sysfs, "ucx", "eth3:1,mlx5_6:1"), "mlx5_6:1", "RDMA before others");
  cr_assert_eq(devices(sysfs, "ucx", "eth3:1,eth4:1"), "eth3");
  cr_assert_eq(devices(sysfs, "auto", "eth3:1"), "none", "over the same as TCP");
  cr_assert_eq(devices(sysfs, "tcp", ports), "none");
}

Test(switch_network, settings_come_before_the_description_and_the_address_after_it) {
  Sysfs sysfs;
  sysfs.rdma("mlx5_0", "4: ACTIVE");
  sysfs.write("class/net/lo/device/infiniband/mlx5_9/ports/1/state", "4: ACTIVE");
  setenv("UCX_NET_DEVICES", "mlx5_4:1", 1);
  cr_assert_eq(devices(sysfs, "ucx:mlx5_1:1", "mlx5_0:1"), "mlx5_1:1");
  cr_assert_eq(devices(sysfs, "ucx", "mlx5_0:1"), "", "as UCX's own setting says");
  cr_assert_eq(devices(sysfs, "auto", "mlx5_0:1"), "");
  unsetenv("UCX_NET_DEVICES");
  cr_assert_eq(devices(sysfs, "auto", "mlx5_0:1"), "mlx5_0:1");
  cr_assert_eq(devices(sysfs, "auto", ""), "mlx5_9:1", "of the card that has the address");
  cr_assert_eq(devices(sysfs, "auto", "mlx5_3:1"), "mlx5_9:1", "what is described is not up");
}

Test(switch_network, a_port_s_name_is_no_way_to_other_files) {
  unsetenv("UCX_NET_DEVICES");
  Sysfs sysfs;
  sysfs.rdma("mlx5_0", "4: ACTIVE");
  sysfs.write("class/net/eth0/operstate", "up");
  for (const char* bad : {"../infiniband/mlx5_0:1", "..:1", ":1", "mlx5_0", "mlx5_0:../ports/1",
                          ",", "eth0/../eth0:1"})
    cr_assert_eq(devices(sysfs, "auto", bad), "none", "%s", bad);
}

Test(switch_network, nccl_is_used_where_it_was_asked_for) {
  cr_assert_not(nccl_of("tcp").has_value());
  cr_assert_not(nccl_of("ucx").has_value());
  cr_assert_not(nccl_of("ucx:mlx5_0:1").has_value());
  cr_assert(nccl_of("nccl").has_value());
  cr_assert_not(nccl_of("auto").has_value(), "it was never seen on a GPU");
}
