// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/cluster/node_description.h"
#include "core/result.h"

/// What a node is made of, and the description made of it. Readers add what their source knows;
/// every source may be missing.
namespace swell::topo {

/// Where a device is plugged in.
struct Attachment {
  std::string pci;  ///< "0000:1b:00.0"
  /// From the host bridge down to the bridge above it; empty: not known.
  std::vector<std::string> path;
  int numa = -1;  ///< -1: not known
};

/// How near two devices are; later is nearer.
enum class Closeness { unknown, other_numa, same_numa, host_bridge, pci_switch };
Closeness closeness(const Attachment& a, const Attachment& b) noexcept;

struct Gpu {
  Attachment place;
  std::string product;              ///< as its driver calls it; empty: not known
  unsigned vendor = 0, device = 0;  ///< PCI ids
  double pcie_bytes_per_s = 0;      ///< one direction; 0: not known
};

struct Port {
  Attachment place;
  cluster::PortDescription is;  ///< without its nearest GPUs
};

/// NVLink between two GPUs, all its links together.
struct NvLink {
  std::string a, b;  ///< PCI addresses
  double bytes_per_s = 0;
};

struct Machine {
  std::string name;
  std::vector<Gpu> gpus;    ///< by rising PCI address
  std::vector<Port> ports;  ///< active ones
  std::vector<NvLink> nvlinks;
  std::map<int, std::string> cores;  ///< of each NUMA node: logical core indexes, "0-55"
  std::vector<std::string> notes;    ///< what was not found, and what follows; one sentence each

  Gpu* find_gpu(const std::string& pci) noexcept;
};

/// From hwloc: GPUs, network cards, where they are plugged in, cores, NVLink where hwloc knows it.
/// Of this node, or of the one that `xml_file` (lstopo's XML) describes, where it is not empty. An
/// error only for a file that hwloc cannot load.
Result<void> read_hwloc(Machine& machine, const std::string& xml_file);

/// From sysfs: what `machine` lacks yet, and of ports what hwloc does not know (rate, link layer).
/// `root` is "/sys" or a copy of it.
void read_sysfs(Machine& machine, const std::string& root);

/// From NVIDIA's driver library, where it can be loaded: product names and NVLink of this node.
void read_nvml(Machine& machine);

/// From libibverbs, where Swell was built with it: ports that sysfs did not show.
void read_verbs(Machine& machine);

/// Slurm's usual name for a product: "NVIDIA H100 80GB HBM3" -> "h100"; empty where none is known.
std::string gpu_type(const std::string& product, unsigned vendor, unsigned device);

/// What is published of it. `leaf`: the switch of its first port, empty where it is not known.
cluster::NodeDescription describe(const Machine& machine, const std::string& leaf = {});

}  // namespace swell::topo
