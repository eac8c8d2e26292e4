// SPDX-License-Identifier: GPL-2.0-or-later
// Prints what Swell reads of this machine's GPUs from sysfs and NVIDIA's driver library, for a
// comparison with NVIDIA's own tools. Last line: JSON.
#include <cstdio>
#include <string>
#include <vector>

#include "core/json.h"
#include "topo/machine.h"

using namespace swell;

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
  for (const std::string& note : machine.notes) std::printf("%s\n", note.c_str());
  std::printf("%s\n",
              Json::object({{"gpus", Json::array_of(gpus)}, {"nvlinks", Json::array_of(links)}})
                  .dump()
                  .c_str());
  return 0;
}
