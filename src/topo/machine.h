// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster/node_description.h"
#include "core/result.h"

/// A node's hardware, and the description made from it. Each reader adds what its source knows;
/// every source may be missing.
namespace swell::topo {

/// Position of a device on its node.
struct Attachment {
  std::string pci;  ///< "0000:1b:00.0"
  /// Bridges above the device, from the host bridge down; empty: not known.
  std::vector<std::string> path;
  int numa = -1;  ///< -1: not known
};

/// Nearness of two devices; later values are nearer.
enum class Closeness { unknown, other_numa, same_numa, host_bridge, pci_switch };
Closeness closeness(const Attachment& a, const Attachment& b) noexcept;

struct Gpu {
  Attachment place;
  std::string product;              ///< name given by its driver; empty: not known
  unsigned vendor = 0, device = 0;  ///< PCI ids
  double pcie_bytes_per_s = 0;      ///< one direction; 0: not known
};

struct Port {
  Attachment place;
  cluster::PortDescription is;  ///< description, without the nearest GPUs
};

/// NVLink between two GPUs: the sum of all its links.
struct NvLink {
  std::string a, b;  ///< PCI addresses
  double bytes_per_s = 0;
};

struct Machine {
  std::string name;
  std::vector<Gpu> gpus;    ///< by rising PCI address
  std::vector<Port> ports;  ///< active ones
  std::vector<NvLink> nvlinks;
  std::map<int, std::string> cores;  ///< logical core indexes of each NUMA node, such as "0-55"
  std::vector<std::string> notes;    ///< what was not found, and the consequence; one sentence each

  Gpu* find_gpu(const std::string& pci) noexcept;
};

/// Reads hwloc: GPUs, network cards, their positions, cores, and NVLink if hwloc knows it.
/// Describes this node, or that of `xml_file` (lstopo's XML) unless it is empty. Returns an error
/// only if hwloc cannot load the file.
Result<void> read_hwloc(Machine& machine, const std::string& xml_file);

/// Reads from sysfs what `machine` still lacks, and for ports what hwloc does not know (rate, link
/// layer). `root` is "/sys" or a copy of it.
void read_sysfs(Machine& machine, const std::string& root);

/// Returns the bytes per second of one NVLink in one direction, by its version from NVML
/// (nvmlNvlinkVersion_t numbers versions in order: 6 is NVLink 4.0); none for an unknown version.
std::optional<double> nvlink_bytes_per_s(unsigned version) noexcept;

/// Reads product names and NVLink of this node from NVIDIA's driver library, if it can be loaded.
void read_nvml(Machine& machine);

/// Reads ports that sysfs did not show from libibverbs, if Swell was built with it.
void read_verbs(Machine& machine);

/// Returns Slurm's usual name for a product: "h100" for "NVIDIA H100 80GB HBM3"; empty if none is
/// known.
std::string gpu_type(const std::string& product, unsigned vendor, unsigned device);

/// Makes the description that is published. `leaf`: switch of the first port; empty if not known.
cluster::NodeDescription describe(const Machine& machine, const std::string& leaf = {});

}  // namespace swell::topo
