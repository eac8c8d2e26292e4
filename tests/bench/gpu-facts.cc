// SPDX-License-Identifier: GPL-2.0-or-later
// Prints what Swell reads about this machine's GPUs from sysfs and NVIDIA's driver library, and the
// driver's raw values, for comparison with NVIDIA's own tools. Last line: JSON.
#include <cstdio>
#include <dlfcn.h>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/nvml_api.h"
#include "topo/machine.h"

using namespace swell;

namespace {

/// NVML's values of each GPU, in NVML's order; links of an unknown version have 0 GB/s.
struct Values {
  std::vector<Json> compute_modes, links;
};

Values read_values() {
  Values found;
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return found;
  const auto look_up = [&]<typename Function>(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    return function != nullptr;
  };
  nvml::Init* init = nullptr;
  nvml::DeviceGetCount* count_of = nullptr;
  nvml::DeviceGetHandleByIndex* device_of = nullptr;
  nvml::DeviceGetComputeMode* mode_of = nullptr;
  nvml::DeviceGetNvLinkState* state_of = nullptr;
  nvml::DeviceGetNvLinkVersion* version_of = nullptr;
  unsigned count = 0;
  if (!look_up(init, "nvmlInit_v2") || !look_up(count_of, "nvmlDeviceGetCount_v2") ||
      !look_up(device_of, "nvmlDeviceGetHandleByIndex_v2") ||
      !look_up(mode_of, "nvmlDeviceGetComputeMode") ||
      !look_up(state_of, "nvmlDeviceGetNvLinkState") ||
      !look_up(version_of, "nvmlDeviceGetNvLinkVersion") || init() != nvml::kSuccess ||
      count_of(&count) != nvml::kSuccess)
    return found;
  for (unsigned gpu = 0; gpu < count; ++gpu) {
    nvml::Device device = nullptr;
    int mode = -1;
    if (device_of(gpu, &device) != nvml::kSuccess) continue;
    mode_of(device, &mode);
    found.compute_modes.emplace_back(mode);
    for (unsigned link = 0; link < 18; ++link) {
      int active = 0;
      unsigned version = 0;
      if (state_of(device, link, &active) != nvml::kSuccess || active == 0 ||
          version_of(device, link, &version) != nvml::kSuccess)
        continue;
      found.links.push_back(
          Json::object({{"gpu", static_cast<int>(gpu)},
                        {"link", static_cast<int>(link)},
                        {"version", static_cast<int>(version)},
                        {"gb_s", topo::nvlink_bytes_per_s(version).value_or(0) / 1e9}}));
    }
  }
  return found;
}

}  // namespace

int main() {
  topo::Machine machine;
  topo::read_sysfs(machine, "/sys");
  topo::read_nvml(machine);
  std::vector<Json> gpus, links;
  for (const topo::Gpu& gpu : machine.gpus) {
    if (gpu.vendor != 0x10de) continue;
    gpus.push_back(Json::object({{"pci", gpu.place.pci},
                                 {"product", gpu.product},
                                 {"type", topo::gpu_type(gpu.product, gpu.vendor, gpu.device)},
                                 {"pcie_gb_s", gpu.pcie_bytes_per_s / 1e9}}));
  }
  for (const topo::NvLink& link : machine.nvlinks)
    links.push_back(Json::object({{"a", link.a}, {"b", link.b}, {"gb_s", link.bytes_per_s / 1e9}}));
  const Values values = read_values();
  std::printf("%s\n", Json::object({{"gpus", array_of(gpus)},
                                    {"nvlinks", array_of(links)},
                                    {"compute_modes", array_of(values.compute_modes)},
                                    {"links", array_of(values.links)},
                                    {"notes", array_of(std::vector<Json>(machine.notes.begin(),
                                                                         machine.notes.end()))}})
                          .dump()
                          .c_str());
  return 0;
}
