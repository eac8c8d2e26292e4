// SPDX-License-Identifier: GPL-2.0-or-later
#include <config.h>

#include "topo/machine.h"

#ifdef HAVE_HWLOC

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <hwloc.h>
#include <hwloc/distances.h>
#include <memory>
#include <sys/stat.h>

#include "topo/numbers.h"

namespace swell::topo {

namespace {

struct Destroy {
  void operator()(hwloc_topology* topology) const noexcept { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

std::string pci_of(hwloc_obj_t obj) {
  const auto& at =
      obj->type == HWLOC_OBJ_BRIDGE ? obj->attr->bridge.upstream.pci : obj->attr->pcidev;
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", static_cast<unsigned>(at.domain),
                     static_cast<unsigned>(at.bus), static_cast<unsigned>(at.dev),
                     static_cast<unsigned>(at.func));
}

Attachment place_of(hwloc_topology_t topology, hwloc_obj_t device) {
  Attachment place;
  place.pci = pci_of(device);
  hwloc_obj_t up = device->parent;
  for (; up != nullptr && up->type == HWLOC_OBJ_BRIDGE; up = up->parent) {
    const bool host = up->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST;
    place.path.insert(place.path.begin(), host ? fmt::format("host {}", up->gp_index) : pci_of(up));
  }
  const hwloc_obj_t local = hwloc_get_non_io_ancestor_obj(topology, device);
  // The device is near a NUMA node only if its position belongs to a single one.
  if (local != nullptr && local->nodeset != nullptr && hwloc_bitmap_weight(local->nodeset) == 1)
    place.numa = hwloc_bitmap_first(local->nodeset);
  return place;
}

bool is_gpu(hwloc_obj_t obj) {
  const unsigned kind = obj->attr->pcidev.class_id >> 8, vendor = obj->attr->pcidev.vendor_id;
  return kind == 0x03 && (vendor == 0x10de || vendor == 0x1002);
}

const char* info(hwloc_obj_t obj, const char* key) { return hwloc_obj_get_info_by_name(obj, key); }

void add_gpu(Machine& machine, hwloc_topology_t topology, hwloc_obj_t obj) {
  Gpu gpu;
  gpu.place = place_of(topology, obj);
  gpu.vendor = obj->attr->pcidev.vendor_id;
  gpu.device = obj->attr->pcidev.device_id;
  gpu.pcie_bytes_per_s = static_cast<double>(obj->attr->pcidev.linkspeed) * 1e9;
  if (!(gpu.pcie_bytes_per_s >= 0 && gpu.pcie_bytes_per_s < 1e12)) gpu.pcie_bytes_per_s = 0;
  for (hwloc_obj_t child = obj->io_first_child; child != nullptr; child = child->next_sibling)
    if (const char* model = info(child, "GPUModel")) gpu.product = model;
  machine.gpus.push_back(std::move(gpu));
}

/// Adds the ports of an InfiniBand device. hwloc knows their addresses, but not their speed.
void add_ports(Machine& machine, hwloc_topology_t topology, hwloc_obj_t obj) {
  for (int number = 1; number <= 2; ++number) {
    const char* state = info(obj, fmt::format("Port{}State", number).c_str());
    if (state == nullptr || std::atoi(state) != 4) continue;
    Port port;
    if (obj->parent != nullptr && obj->parent->type == HWLOC_OBJ_PCI_DEVICE)
      port.place = place_of(topology, obj->parent);
    port.is.device = obj->name != nullptr ? obj->name : "";
    port.is.port = number;
    if (const char* gid = info(obj, fmt::format("Port{}GID0", number).c_str()))
      read_gid(gid, port.is.subnet_prefix, port.is.guid);
    machine.ports.push_back(std::move(port));
  }
}

/// Adds NVLinks from a matrix of OS devices, in MB/s; if they lead through switches, with the
/// bandwidth through these.
void add_nvlinks(Machine& machine, hwloc_topology_t topology) {
  unsigned count = 1;
  hwloc_distances_s* matrix = nullptr;
  if (hwloc_distances_get_by_name(topology, "NVLinkBandwidth", &count, &matrix, 0) != 0 ||
      count < 1 || matrix == nullptr)
    return;
  // The first call fails if there are no switches; the second would then remove direct links.
  if (hwloc_distances_transform(topology, matrix, HWLOC_DISTANCES_TRANSFORM_MERGE_SWITCH_PORTS,
                                nullptr, 0) == 0)
    (void)hwloc_distances_transform(topology, matrix, HWLOC_DISTANCES_TRANSFORM_TRANSITIVE_CLOSURE,
                                    nullptr, 0);
  const auto pci = [&](unsigned i) -> std::string {
    hwloc_obj_t obj = matrix->objs[i];
    while (obj != nullptr && obj->type != HWLOC_OBJ_PCI_DEVICE) obj = obj->parent;
    return obj == nullptr ? "" : pci_of(obj);
  };
  for (unsigned a = 0; a < matrix->nbobjs; ++a)
    for (unsigned b = a + 1; b < matrix->nbobjs; ++b) {
      if (matrix->objs[a] == nullptr || matrix->objs[b] == nullptr) continue;
      const double mb = static_cast<double>(
          std::min(matrix->values[a * matrix->nbobjs + b], matrix->values[b * matrix->nbobjs + a]));
      const std::string one = pci(a), other = pci(b);
      if (mb > 0 && mb < 1e8 && !one.empty() && !other.empty() && one != other)
        machine.nvlinks.push_back({one, other, mb * 1e6});
    }
  hwloc_distances_release(topology, matrix);
}

/// Adds cores by hwloc's logical indexes, socket by socket, as Slurm counts them.
void add_cores(Machine& machine, hwloc_topology_t topology) {
  std::map<int, std::vector<int>> cores;
  for (hwloc_obj_t core = nullptr;
       (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr;)
    if (core->nodeset != nullptr && hwloc_bitmap_weight(core->nodeset) == 1)
      cores[hwloc_bitmap_first(core->nodeset)].push_back(static_cast<int>(core->logical_index));
  for (const auto& [numa, list] : cores) machine.cores[numa] = ranges(list);
}

}  // namespace

Result<void> read_hwloc(Machine& machine, const std::string& xml_file) {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) {
    machine.notes.push_back("hwloc could not be started: GPUs come from sysfs alone");
    return {};
  }
  const Topology topology(made);
  hwloc_topology_set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (!xml_file.empty()) {
    struct stat there {};
    if (stat(xml_file.c_str(), &there) != 0)
      return Error(fmt::format("{}: {}", xml_file, std::strerror(errno)));
    if (hwloc_topology_set_xml(made, xml_file.c_str()) != 0)
      return Error(
          fmt::format("{}: hwloc cannot load it; give what \"lstopo FILE.xml\" writes", xml_file));
  }
  if (hwloc_topology_load(made) != 0) {
    if (!xml_file.empty())
      return Error(
          fmt::format("{}: hwloc cannot load it; give what \"lstopo FILE.xml\" writes", xml_file));
    machine.notes.push_back("hwloc found nothing out about this node: GPUs come from sysfs alone");
    return {};
  }
  for (hwloc_obj_t obj = nullptr; (obj = hwloc_get_next_pcidev(made, obj)) != nullptr;)
    if (is_gpu(obj)) add_gpu(machine, made, obj);
  for (hwloc_obj_t obj = nullptr; (obj = hwloc_get_next_osdev(made, obj)) != nullptr;)
    if (obj->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) add_ports(machine, made, obj);
  add_nvlinks(machine, made);
  add_cores(machine, made);
  std::sort(machine.gpus.begin(), machine.gpus.end(),
            [](const Gpu& a, const Gpu& b) { return a.place.pci < b.place.pci; });
  return {};
}

}  // namespace swell::topo

#else

namespace swell::topo {

Result<void> read_hwloc(Machine& machine, const std::string& xml_file) {
  if (!xml_file.empty())
    return Error(
        "--hwloc-xml: this swell was built without hwloc; install libhwloc-dev and build it again");
  machine.notes.push_back("built without hwloc: GPUs come from sysfs alone");
  return {};
}

}  // namespace swell::topo

#endif
