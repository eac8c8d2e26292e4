// SPDX-License-Identifier: GPL-2.0-or-later
// Reader of NVIDIA's management library by its published C interface, loaded where installed: Swell
// is built without the driver.
#include <algorithm>
#include <dlfcn.h>
#include <fmt/format.h>
#include <memory>

#include "topo/machine.h"

namespace swell::topo {

namespace {

using Device = struct nvmlDevice_st*;
struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, ids, subsystem;
  char bus_id[32];
};
constexpr int kSuccess = 0;
constexpr unsigned kMaxLinks = 18;

struct Close {
  void operator()(void* library) const noexcept { dlclose(library); }
};

class Nvml {
 public:
  explicit Nvml(void* library) : library_(library) {}
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

/// Bytes a second of one link in one direction, by NVLink's version.
double link_bandwidth(unsigned version) { return version >= 5 ? 50e9 : version >= 2 ? 25e9 : 20e9; }

struct Links {
  std::string pci;
  double all = 0;                    ///< bytes a second of all its links
  std::map<std::string, double> to;  ///< bytes a second to each other end
};

}  // namespace

void read_nvml(Machine& machine) {
  const std::unique_ptr<void, Close> library(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
  if (!library) {
    if (!machine.gpus.empty() && machine.nvlinks.empty())
      machine.notes.push_back(
          "NVIDIA's driver library cannot be loaded: links between GPUs are taken for PCIe");
    return;
  }
  const Nvml nvml(library.get());
  const auto init = nvml.get<int()>("nvmlInit_v2");
  const auto shutdown = nvml.get<int()>("nvmlShutdown");
  const auto count_of = nvml.get<int(unsigned*)>("nvmlDeviceGetCount_v2");
  const auto device_of = nvml.get<int(unsigned, Device*)>("nvmlDeviceGetHandleByIndex_v2");
  const auto pci_of = nvml.get<int(Device, PciInfo*)>("nvmlDeviceGetPciInfo_v3");
  const auto name_of = nvml.get<int(Device, char*, unsigned)>("nvmlDeviceGetName");
  const auto link_state = nvml.get<int(Device, unsigned, unsigned*)>("nvmlDeviceGetNvLinkState");
  const auto link_version =
      nvml.get<int(Device, unsigned, unsigned*)>("nvmlDeviceGetNvLinkVersion");
  const auto link_remote =
      nvml.get<int(Device, unsigned, PciInfo*)>("nvmlDeviceGetNvLinkRemotePciInfo_v2");
  if (!init || !shutdown || !count_of || !device_of || !pci_of || !name_of || init() != kSuccess) {
    machine.notes.push_back(
        "NVIDIA's driver library does not answer: links between GPUs are taken for PCIe");
    return;
  }
  unsigned count = 0;
  if (count_of(&count) != kSuccess) count = 0;
  std::vector<Links> found;
  for (unsigned i = 0; i < count && i < 64; ++i) {
    Device device = nullptr;
    PciInfo pci{};
    if (device_of(i, &device) != kSuccess || pci_of(device, &pci) != kSuccess) continue;
    Links links;
    links.pci = address(pci);
    char name[96] = "";
    if (Gpu* gpu = machine.find_gpu(links.pci);
        gpu != nullptr && name_of(device, name, sizeof(name)) == kSuccess) {
      name[sizeof(name) - 1] = '\0';
      gpu->product = name;
    }
    for (unsigned link = 0; link < kMaxLinks && link_state && link_version && link_remote; ++link) {
      unsigned active = 0, version = 0;
      PciInfo other{};
      if (link_state(device, link, &active) != kSuccess || active == 0) continue;
      if (link_version(device, link, &version) != kSuccess ||
          link_remote(device, link, &other) != kSuccess)
        continue;
      links.all += link_bandwidth(version);
      links.to[address(other)] += link_bandwidth(version);
    }
    found.push_back(std::move(links));
  }
  shutdown();
  if (found.size() > 1) machine.nvlinks.clear();
  for (std::size_t a = 0; a < found.size(); ++a)
    for (std::size_t b = a + 1; b < found.size(); ++b) {
      double rate = 0;
      if (const auto direct = found[a].to.find(found[b].pci); direct != found[a].to.end())
        rate = direct->second;
      // An other end that is no GPU is a switch, which reaches every GPU on it with all their
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
