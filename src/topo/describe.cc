// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <iterator>
#include <limits>

#include "core/cluster/cluster.h"
#include "topo/machine.h"

namespace swell::topo {

namespace {

using cluster::GpuLink;
using cluster::LinkKind;

/// PCI device ids of NVIDIA's GPUs, for nodes without their driver.
constexpr struct {
  unsigned device;
  const char* type;
} kDevices[] = {{0x2901, "b200"}, {0x2335, "h200"}, {0x2330, "h100"},     {0x2331, "h100"},
                {0x20b2, "a100"}, {0x20b5, "a100"}, {0x20b0, "a100-40g"}, {0x20f1, "a100-40g"},
                {0x1db5, "v100"}, {0x1db6, "v100"}, {0x1db1, "v100"},     {0x26ba, "l20"},
                {0x2235, "a40"},  {0x2236, "a10"},  {0x1b06, "1080ti"}};

/// Returns the fraction of PCIe's bandwidth between two devices: all of it below one switch; less
/// through the processor, and between processors. Assumed, not measured.
double share(Closeness near) {
  switch (near) {
    case Closeness::pci_switch: return 1.0;
    case Closeness::host_bridge:
    case Closeness::same_numa: return 0.75;
    default: return 0.5;
  }
}

GpuLink link_between(const Machine& machine, int a, int b) {
  const Gpu& one = machine.gpus[static_cast<std::size_t>(a)];
  const Gpu& other = machine.gpus[static_cast<std::size_t>(b)];
  for (const NvLink& each : machine.nvlinks)
    if ((each.a == one.place.pci && each.b == other.place.pci) ||
        (each.b == one.place.pci && each.a == other.place.pci))
      return {a, b, LinkKind::nvlink, each.bytes_per_s};
  const double slower = std::min(one.pcie_bytes_per_s, other.pcie_bytes_per_s);
  if (slower <= 0) return {a, b, LinkKind::unknown, 0};
  return {a, b, LinkKind::pcie, slower * share(closeness(one.place, other.place))};
}

/// Sets usual_link to the most frequent link of pairs, and `links` to all other ones.
void put_links(const Machine& machine, cluster::NodeDescription& node) {
  std::vector<GpuLink> all;
  const int count = static_cast<int>(node.gpus.size());
  for (int a = 0; a < count; ++a)
    for (int b = a + 1; b < count; ++b) all.push_back(link_between(machine, a, b));
  const auto same = [](const GpuLink& x, const GpuLink& y) {
    return x.kind == y.kind && x.bytes_per_s == y.bytes_per_s;
  };
  std::ptrdiff_t max = 0;
  for (const GpuLink& each : all) {
    const auto times = std::count_if(all.begin(), all.end(),
                                     [&](const GpuLink& other) { return same(each, other); });
    if (times <= max) continue;
    max = times;
    node.usual_link = {0, 0, each.kind, each.bytes_per_s};
  }
  std::copy_if(all.begin(), all.end(), std::back_inserter(node.links),
               [&](const GpuLink& each) { return !same(each, node.usual_link); });
}

void put_ports(const Machine& machine, cluster::NodeDescription& node) {
  // If there are fast ports, the others carry administration, not training.
  const bool fast = std::any_of(machine.ports.begin(), machine.ports.end(),
                                [](const Port& port) { return port.is.guid != 0; });
  std::vector<const Port*> used;
  for (const Port& port : machine.ports)
    if (!fast || port.is.guid != 0) used.push_back(&port);
  for (const Port* port : used) {
    node.ports.push_back(port->is);
    node.ports.back().pci = port->place.pci;
    node.ports.back().numa = port->place.numa;
  }
  for (std::size_t gpu = 0; gpu < node.gpus.size(); ++gpu) {
    const Attachment& place = machine.gpus[gpu].place;
    Closeness best = Closeness::unknown;
    for (const Port* port : used) best = std::max(best, closeness(port->place, place));
    for (std::size_t i = 0; i < used.size(); ++i)
      if (closeness(used[i]->place, place) == best)
        node.ports[i].nearest_gpus.push_back(static_cast<int>(gpu));
  }
}

}  // namespace

Closeness closeness(const Attachment& a, const Attachment& b) noexcept {
  if (!a.path.empty() && !b.path.empty() && a.path[0] == b.path[0])
    return a.path.size() > 1 && b.path.size() > 1 && a.path[1] == b.path[1]
               ? Closeness::pci_switch
               : Closeness::host_bridge;
  if (a.numa < 0 || b.numa < 0) return Closeness::unknown;
  return a.numa == b.numa ? Closeness::same_numa : Closeness::other_numa;
}

Gpu* Machine::find_gpu(const std::string& pci) noexcept {
  for (Gpu& gpu : gpus)
    if (gpu.place.pci == pci) return &gpu;
  return nullptr;
}

std::string gpu_type(const std::string& product, unsigned vendor, unsigned device) {
  if (const auto known = cluster::find_gpu_type(product)) return known->name;
  if (vendor == 0x10de)
    for (const auto& known : kDevices)
      if (known.device == device) return known.type;
  return {};
}

cluster::NodeDescription describe(const Machine& machine, const std::string& leaf) {
  cluster::NodeDescription node;
  node.leaf = leaf;
  for (const Gpu& gpu : machine.gpus) {
    if (node.gpus.size() == cluster::kMaxGpusPerNode) break;
    node.gpus.push_back(
        {gpu_type(gpu.product, gpu.vendor, gpu.device), gpu.place.pci, gpu.place.numa});
  }
  put_links(machine, node);
  put_ports(machine, node);
  return node;
}

}  // namespace swell::topo
