// SPDX-License-Identifier: GPL-2.0-or-later
// Reads NVIDIA's management library through its published C interface. It is loaded if installed;
// Swell is built without the driver.
#include <algorithm>
#include <dlfcn.h>
#include <fmt/format.h>
#include <memory>
#include <set>

#include "core/compute_mode.h"
#include "core/count_of.h"
#include "core/nvml_api.h"
#include "topo/machine.h"

namespace swell::topo {

namespace {

using nvml::Device;
using nvml::kSuccess;
using nvml::PciInfo;
struct Close {
  void operator()(void* library) const noexcept { dlclose(library); }
};

class Library {
 public:
  explicit Library(void* library) : library_(library) {}
  template <typename Function>
  Function* get(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library_, name));
  }

 private:
  void* library_;
};

std::string address(const PciInfo& pci) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
}

struct Links {
  std::string pci;
  double all = 0;                    ///< bytes per second of all its links
  std::map<std::string, double> to;  ///< bytes per second to each other end
};

/// Reads the NVLinks of one GPU after another, and what is wrong with them.
class LinkReader {
 public:
  explicit LinkReader(const Library& found_in)
      : state_(found_in.get<nvml::DeviceGetNvLinkState>("nvmlDeviceGetNvLinkState")),
        version_(found_in.get<nvml::DeviceGetNvLinkVersion>("nvmlDeviceGetNvLinkVersion")),
        remote_(found_in.get<nvml::DeviceGetNvLinkRemotePciInfo>(
            "nvmlDeviceGetNvLinkRemotePciInfo_v2")),
        fields_(found_in.get<nvml::DeviceGetFieldValues>("nvmlDeviceGetFieldValues")),
        fabric_(found_in.get<nvml::DeviceGetFabricInfo>("nvmlDeviceGetGpuFabricInfoV")) {}
  Links read(Device device, const PciInfo& pci);
  /// Appends a sentence for each kind of problem.
  void note_in(std::vector<std::string>& notes) const;

 private:
  std::optional<double> stated_bytes_per_s(Device device, unsigned link) const;
  std::optional<double> rate(Device device, unsigned link);

  nvml::DeviceGetNvLinkState* const state_;
  nvml::DeviceGetNvLinkVersion* const version_;
  nvml::DeviceGetNvLinkRemotePciInfo* const remote_;
  nvml::DeviceGetFieldValues* const fields_;  ///< nullptr in old drivers
  nvml::DeviceGetFabricInfo* const fabric_;   ///< likewise
  std::map<unsigned, double> unknown_;  ///< stated bytes per second by unknown version; 0: none
  int nowhere_ = 0;                     ///< active links of which the other end is not known
  std::set<std::string> fabrics_;       ///< NVLink fabrics that may reach other nodes
};

/// Returns the bytes per second of a link as the driver states them. The line rate is meant, of
/// which 3 to 6 % encode.
std::optional<double> LinkReader::stated_bytes_per_s(Device device, unsigned link) const {
  nvml::FieldValue speed{};
  speed.field = nvml::kLinkSpeed;
  speed.scope = link;
  if (fields_ == nullptr || fields_(device, 1, &speed) != kSuccess || speed.status != kSuccess)
    return std::nullopt;
  double mb_per_s = 0;
  if (speed.type == nvml::kUnsignedInt) mb_per_s = speed.value.number;
  else if (speed.type == nvml::kUnsignedLong || speed.type == nvml::kUnsignedLongLong)
    mb_per_s = static_cast<double>(speed.value.large);
  // No link has more than 1 TB/s.
  return mb_per_s > 0 && mb_per_s <= 1e6 ? std::optional(mb_per_s * 1e6) : std::nullopt;
}

/// Returns the bytes per second of an active link, by its version or else as the driver states
/// them.
std::optional<double> LinkReader::rate(Device device, unsigned link) {
  unsigned version = 0;
  if (version_(device, link, &version) != kSuccess) version = 0;
  if (const auto known = nvlink_bytes_per_s(version)) return known;
  const std::optional<double> stated = stated_bytes_per_s(device, link);
  unknown_[version] = stated.value_or(0);
  return stated;
}

Links LinkReader::read(Device device, const PciInfo& pci) {
  Links links;
  links.pci = address(pci);
  for (unsigned link = 0; link < nvml::kMaxLinks && state_ && version_ && remote_; ++link) {
    int active = 0;
    PciInfo other{};
    if (state_(device, link, &active) != kSuccess || active == 0) continue;
    if (remote_(device, link, &other) != kSuccess) {
      ++nowhere_;
      continue;
    }
    const std::optional<double> bytes_per_s = rate(device, link);
    if (!bytes_per_s) continue;
    links.all += *bytes_per_s;
    links.to[address(other)] += *bytes_per_s;
  }
  nvml::FabricInfo fabric;
  if (fabric_ != nullptr && fabric_(device, &fabric) == kSuccess &&
      fabric.state == nvml::kFabricCompleted) {
    std::string cluster;
    for (const unsigned char byte : fabric.cluster) cluster += fmt::format("{:02x}", byte);
    if (cluster.find_first_not_of('0') != std::string::npos)
      fabrics_.insert(fmt::format("{}, clique {}", cluster, fabric.clique));
  }
  return links;
}

void LinkReader::note_in(std::vector<std::string>& notes) const {
  for (const auto& [version, stated] : unknown_)
    notes.push_back(fmt::format(
        "NVIDIA's driver gives NVLink version {}, which Swell does not know: {}; measure with "
        "swell topo calibrate",
        version,
        stated > 0 ? fmt::format("the driver's {:.0f} GB/s a link are used", stated / 1e9)
                   : "the driver states no speed, and these links are not counted"));
  if (nowhere_ > 0)
    notes.push_back(fmt::format(
        "NVIDIA's driver does not say where {} {}: not counted; measure with swell topo calibrate",
        count_of(nowhere_, "active NVLink"), nowhere_ == 1 ? "leads" : "lead"));
  for (const std::string& fabric : fabrics_)
    notes.push_back(fmt::format(
        "the GPUs are in NVLink fabric {}, which may reach other nodes: between nodes Swell "
        "counts on the network alone",
        fabric));
}

}  // namespace

std::optional<double> nvlink_bytes_per_s(unsigned version) noexcept {
  switch (version) {
    case nvml::kNvLink1_0: return 20e9;  // P100
    case nvml::kNvLink2_0:               // V100
    case nvml::kNvLink2_2:
    case nvml::kNvLink3_0:  // A100
    case nvml::kNvLink3_1:
    case nvml::kNvLink4_0: return 25e9;  // H100
    case nvml::kNvLink5_0: return 50e9;  // B200
    default: return std::nullopt;
  }
}

void read_nvml(Machine& machine) {
  const std::unique_ptr<void, Close> library(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
  if (!library) {
    if (!machine.gpus.empty() && machine.nvlinks.empty())
      machine.notes.push_back(
          "NVIDIA's driver library cannot be loaded: links between GPUs are taken for PCIe");
    return;
  }
  const Library found_in(library.get());
  const auto init = found_in.get<nvml::Init>("nvmlInit_v2");
  const auto shutdown = found_in.get<nvml::Init>("nvmlShutdown");
  const auto get_count = found_in.get<nvml::DeviceGetCount>("nvmlDeviceGetCount_v2");
  const auto device_of =
      found_in.get<nvml::DeviceGetHandleByIndex>("nvmlDeviceGetHandleByIndex_v2");
  const auto pci_of = found_in.get<nvml::DeviceGetPciInfo>("nvmlDeviceGetPciInfo_v3");
  const auto name_of = found_in.get<nvml::DeviceGetName>("nvmlDeviceGetName");
  if (!init || !shutdown || !get_count || !device_of || !pci_of || !name_of || init() != kSuccess) {
    machine.notes.push_back(
        "NVIDIA's driver library does not answer: links between GPUs are taken for PCIe");
    return;
  }
  unsigned count = 0;
  if (get_count(&count) != kSuccess) count = 0;
  std::vector<Links> found;
  LinkReader reader(found_in);
  for (unsigned i = 0; i < count && i < 64; ++i) {
    Device device = nullptr;
    PciInfo pci{};
    if (device_of(i, &device) != kSuccess || pci_of(device, &pci) != kSuccess) continue;
    char name[96] = "";
    if (Gpu* gpu = machine.find_gpu(address(pci));
        gpu != nullptr && name_of(device, name, sizeof(name)) == kSuccess) {
      name[sizeof(name) - 1] = '\0';
      gpu->product = name;
    }
    found.push_back(reader.read(device, pci));
  }
  shutdown();
  if (const std::string one = one_program_text(one_program_gpus()); !one.empty())
    machine.notes.push_back(one + ": live jobs are resized by restarts here");
  reader.note_in(machine.notes);
  if (found.size() > 1) machine.nvlinks.clear();
  for (std::size_t a = 0; a < found.size(); ++a)
    for (std::size_t b = a + 1; b < found.size(); ++b) {
      double rate = 0;
      if (const auto direct = found[a].to.find(found[b].pci); direct != found[a].to.end())
        rate = direct->second;
      // If the other end is not a GPU, it is a switch, which reaches every GPU on it with all their
      // links.
      const auto switched = [&](const Links& links) {
        for (const auto& [pci, ignored] : links.to)
          if (machine.find_gpu(pci) == nullptr) return true;
        return false;
      };
      if (rate == 0 && switched(found[a]) && switched(found[b]))
        rate = std::min(found[a].all, found[b].all);
      if (rate > 0) machine.nvlinks.push_back({found[a].pci, found[b].pci, rate});
    }
}

}  // namespace swell::topo
