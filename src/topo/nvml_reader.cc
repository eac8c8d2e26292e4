// SPDX-License-Identifier: GPL-2.0-or-later
// Reads NVIDIA's management library through its published C interface. It is loaded if installed;
// Swell is built without the driver.
#include <algorithm>
#include <dlfcn.h>
#include <fmt/format.h>
#include <memory>
#include <set>

#include "core/compute_mode.h"
#include "core/nvml_api.h"
#include "topo/machine.h"

namespace swell::topo {

namespace {

using nvml::Device;
using nvml::kSuccess;
using nvml::PciInfo;
constexpr unsigned kMaxLinks = 18;
constexpr double kUnknownLink = 25e9;  ///< bytes per second of a link of an unknown version

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
  const auto count_of = found_in.get<nvml::DeviceGetCount>("nvmlDeviceGetCount_v2");
  const auto device_of =
      found_in.get<nvml::DeviceGetHandleByIndex>("nvmlDeviceGetHandleByIndex_v2");
  const auto pci_of = found_in.get<nvml::DeviceGetPciInfo>("nvmlDeviceGetPciInfo_v3");
  const auto name_of = found_in.get<nvml::DeviceGetName>("nvmlDeviceGetName");
  const auto link_state = found_in.get<nvml::DeviceGetNvLinkState>("nvmlDeviceGetNvLinkState");
  const auto link_version =
      found_in.get<nvml::DeviceGetNvLinkVersion>("nvmlDeviceGetNvLinkVersion");
  const auto link_remote =
      found_in.get<nvml::DeviceGetNvLinkRemotePciInfo>("nvmlDeviceGetNvLinkRemotePciInfo_v2");
  if (!init || !shutdown || !count_of || !device_of || !pci_of || !name_of || init() != kSuccess) {
    machine.notes.push_back(
        "NVIDIA's driver library does not answer: links between GPUs are taken for PCIe");
    return;
  }
  unsigned count = 0;
  if (count_of(&count) != kSuccess) count = 0;
  std::vector<Links> found;
  std::set<unsigned> unknown;
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
      int active = 0;
      unsigned version = 0;
      PciInfo other{};
      if (link_state(device, link, &active) != kSuccess || active == 0) continue;
      if (link_version(device, link, &version) != kSuccess ||
          link_remote(device, link, &other) != kSuccess)
        continue;
      const std::optional<double> known = nvlink_bytes_per_s(version);
      if (!known) unknown.insert(version);
      const double rate = known.value_or(kUnknownLink);
      links.all += rate;
      links.to[address(other)] += rate;
    }
    found.push_back(std::move(links));
  }
  shutdown();
  if (const std::string one = one_program_text(one_program_gpus()); !one.empty())
    machine.notes.push_back(one + ": live jobs are resized by restarts here");
  for (const unsigned version : unknown)
    machine.notes.push_back(fmt::format(
        "NVIDIA's driver gives NVLink version {}, which Swell does not know: {:.0f} GB/s a "
        "link are assumed; measure with swell topo calibrate",
        version, kUnknownLink / 1e9));
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
