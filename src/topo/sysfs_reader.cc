// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>

#include "topo/machine.h"
#include "topo/numbers.h"

namespace swell::topo {

namespace {

namespace fs = std::filesystem;

/// Returns the first line of a small file; empty if it cannot be read.
std::string line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line.substr(0, 4096);
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> result;
  std::error_code problem;
  for (fs::directory_iterator each(folder, problem), end; !problem && each != end;
       each.increment(problem))
    result.push_back(each->path());
  std::sort(result.begin(), result.end());
  return result;
}

/// Returns the position of a device from its folder, which is below those of the bridges above it:
/// /sys/devices/pci0000:17/0000:17:01.0/0000:1b:00.0.
Attachment place_of(const fs::path& device) {
  Attachment place;
  std::error_code problem;
  const fs::path real = fs::canonical(device, problem);
  if (problem) return place;
  bool below_host = false;
  for (const fs::path& part : real.parent_path()) {
    below_host |= part.string().starts_with("pci0") || part.string().starts_with("pci1");
    if (below_host) place.path.push_back(part.string());
  }
  place.pci = real.filename().string();
  const std::string numa = line_of(real / "numa_node");
  if (!numa.empty()) place.numa = std::max(std::atoi(numa.c_str()), -1);
  return place;
}

unsigned hex_of(const fs::path& file) {
  return static_cast<unsigned>(std::strtoul(line_of(file).c_str(), nullptr, 16));
}

void read_gpus(Machine& machine, const fs::path& root) {
  const bool known = !machine.gpus.empty();
  for (const fs::path& device : entries(root / "bus/pci/devices")) {
    const unsigned kind = hex_of(device / "class") >> 16, vendor = hex_of(device / "vendor");
    if (kind != 0x03 || (vendor != 0x10de && vendor != 0x1002)) continue;
    const Attachment place = place_of(device);
    Gpu* gpu = machine.find_gpu(place.pci);
    if (gpu == nullptr) {
      if (known) continue;
      machine.gpus.push_back({place, "", vendor, hex_of(device / "device"), 0});
      gpu = &machine.gpus.back();
    }
    if (gpu->place.numa < 0) gpu->place.numa = place.numa;
    // An idle GPU lowers the speed of its link, so the maximum counts.
    const double max =
        pcie_bandwidth(line_of(device / "max_link_speed"), line_of(device / "max_link_width"));
    if (max > 0) gpu->pcie_bytes_per_s = max;
  }
}

cluster::LinkLayer layer_of(const std::string& text) {
  if (text == "InfiniBand") return cluster::LinkLayer::infiniband;
  if (text == "Ethernet") return cluster::LinkLayer::ethernet;
  return cluster::LinkLayer::unknown;
}

void read_rdma_ports(Machine& machine, const fs::path& root) {
  for (const fs::path& device : entries(root / "class/infiniband"))
    for (const fs::path& folder : entries(device / "ports")) {
      const int number = std::atoi(folder.filename().c_str());
      if (number < 1 || number > 255) continue;
      const std::string name = device.filename().string(), state = line_of(folder / "state");
      const auto found = std::find_if(
          machine.ports.begin(), machine.ports.end(),
          [&](const Port& port) { return port.is.device == name && port.is.port == number; });
      if (!state.starts_with("4")) {
        machine.notes.push_back(fmt::format("{} port {} is not active ({}) and is left out", name,
                                            number, state.empty() ? "no state" : state));
        if (found != machine.ports.end()) machine.ports.erase(found);
        continue;
      }
      Port& port = found != machine.ports.end() ? *found : machine.ports.emplace_back();
      port.is.device = name;
      port.is.port = number;
      port.is.layer = layer_of(line_of(folder / "link_layer"));
      // "400 Gb/sec (4X NDR)"
      const double gbit = std::strtod(line_of(folder / "rate").c_str(), nullptr);
      port.is.bytes_per_s = gbit > 0 && gbit < 1e5 ? gbit * 1e9 / 8 : 0;
      read_gid(line_of(folder / "gids/0"), port.is.subnet_prefix, port.is.guid);
      if (port.place.pci.empty()) port.place = place_of(device / "device");
      else if (port.place.numa < 0) port.place.numa = place_of(device / "device").numa;
    }
}

void read_network_interfaces(Machine& machine, const fs::path& root) {
  for (const fs::path& card : entries(root / "class/net")) {
    std::error_code problem;
    // An interface without a device is a bridge, a bond, a tunnel, ...
    if (!fs::exists(card / "device", problem) || line_of(card / "operstate") != "up") continue;
    const double mbit = std::strtod(line_of(card / "speed").c_str(), nullptr);
    if (!(mbit > 0 && mbit < 1e8)) continue;
    Port port;
    port.place = place_of(card / "device");
    const bool twice =
        std::any_of(machine.ports.begin(), machine.ports.end(),
                    [&](const Port& other) { return other.place.pci == port.place.pci; });
    if (twice) continue;
    port.is.device = card.filename().string();
    port.is.port = 0;
    port.is.layer = cluster::LinkLayer::ethernet;
    port.is.bytes_per_s = mbit * 1e6 / 8;
    machine.ports.push_back(std::move(port));
  }
}

/// Reads cores with Slurm's numbers: by socket, then by core.
void read_cores(Machine& machine, const fs::path& root) {
  std::map<std::pair<int, int>, int> cores;  // NUMA node by (package, core)
  for (const fs::path& cpu : entries(root / "devices/system/cpu")) {
    const std::string name = cpu.filename().string();
    if (!name.starts_with("cpu") || name.size() < 4 ||
        name.find_first_not_of("0123456789", 3) != name.npos)
      continue;
    const std::string package = line_of(cpu / "topology/physical_package_id"),
                      core = line_of(cpu / "topology/core_id");
    if (package.empty() || core.empty()) continue;
    int numa = -1;
    for (const fs::path& entry : entries(cpu))
      if (entry.filename().string().starts_with("node"))
        numa = std::atoi(entry.filename().c_str() + 4);
    cores[{std::atoi(package.c_str()), std::atoi(core.c_str())}] = numa;
  }
  std::map<int, std::vector<int>> lists;
  int index = 0;
  for (const auto& [ignored, numa] : cores) lists[numa].push_back(index++);
  lists.erase(-1);
  for (const auto& [numa, list] : lists) machine.cores[numa] = ranges(list);
}

}  // namespace

void read_sysfs(Machine& machine, const std::string& root) {
  read_gpus(machine, root);
  read_rdma_ports(machine, root);
  read_network_interfaces(machine, root);
  if (machine.cores.empty()) read_cores(machine, root);
}

}  // namespace swell::topo
