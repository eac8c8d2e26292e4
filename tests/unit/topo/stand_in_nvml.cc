// SPDX-License-Identifier: GPL-2.0-or-later
// Stands in for NVIDIA's management library: STAND_IN_COMPUTE_MODES="0,3" are two GPUs in these
// compute modes; -1 is one that may not be opened. STAND_IN_MINORS="1,0" are their device numbers,
// STAND_IN_SECONDS the time that initialization takes. STAND_IN_NVLINKS="0-1:6:18,1-2:9:1" has 18
// links of version 6 from GPU 0 to what has GPU 1's PCI address, and so on; each is seen from both;
// what leads to 64 or above leads nowhere that the driver knows. STAND_IN_NVLINK_MBPS is the speed
// that it states of each link; STAND_IN_FABRIC="7:2" has the GPUs in clique 2 of an NVLink fabric
// whose UUID ends with 07.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include "core/nvml_api.h"

namespace swell::nvml {

struct nvmlDevice_st {
  int mode;
  unsigned minor, index;
};

}  // namespace swell::nvml

namespace {

constexpr int kInvalidArgument = 2, kNotSupported = 3;
swell::nvml::nvmlDevice_st devices[64];
unsigned count = 0;

struct Link {
  unsigned other, version;
};

/// Returns the links of a GPU.
std::vector<Link> links_of(unsigned index) {
  std::vector<Link> links;
  const char* set = std::getenv("STAND_IN_NVLINKS");
  std::istringstream words(set != nullptr ? set : "");
  for (std::string word; std::getline(words, word, ',');) {
    unsigned a = 0, b = 0, version = 0, number = 0;
    if (std::sscanf(word.c_str(), "%u-%u:%u:%u", &a, &b, &version, &number) != 4) continue;
    if (a == index || b == index)
      links.resize(links.size() + number, {a == index ? b : a, version});
  }
  return links;
}

void fill(swell::nvml::PciInfo& pci, unsigned index) {
  pci = {};
  pci.bus = index + 1;
}

}  // namespace

#define EXPORT __attribute__((visibility("default")))

extern "C" {

EXPORT int nvmlInit_v2() {
  if (const char* seconds = std::getenv("STAND_IN_SECONDS")) sleep(std::atoi(seconds));
  const char* set = std::getenv("STAND_IN_COMPUTE_MODES");
  const char* minor = std::getenv("STAND_IN_MINORS");
  count = 0;
  for (const char* at = set != nullptr ? set : ""; *at != '\0' && count < 64;) {
    devices[count].minor = minor != nullptr ? std::atoi(minor) : count;
    if (minor != nullptr && (minor = std::strchr(minor, ',')) != nullptr) ++minor;
    devices[count].index = count;
    devices[count++].mode = std::atoi(at);
    const char* comma = std::strchr(at, ',');
    at = comma != nullptr ? comma + 1 : "";
  }
  return swell::nvml::kSuccess;
}

EXPORT int nvmlShutdown() { return swell::nvml::kSuccess; }

EXPORT int nvmlDeviceGetCount_v2(unsigned* found) {
  *found = count;
  return swell::nvml::kSuccess;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, swell::nvml::Device* device) {
  if (index >= count || devices[index].mode < 0) return kInvalidArgument;
  *device = &devices[index];
  return swell::nvml::kSuccess;
}

EXPORT int nvmlDeviceGetComputeMode(swell::nvml::Device device, int* mode) {
  *mode = device->mode;
  return swell::nvml::kSuccess;
}

EXPORT int nvmlDeviceGetMinorNumber(swell::nvml::Device device, unsigned* minor) {
  *minor = device->minor;
  return swell::nvml::kSuccess;
}

EXPORT int nvmlDeviceGetPciInfo_v3(swell::nvml::Device device, swell::nvml::PciInfo* pci) {
  fill(*pci, device->index);
  return swell::nvml::kSuccess;
}

EXPORT int nvmlDeviceGetName(swell::nvml::Device device, char* name, unsigned bytes) {
  std::snprintf(name, bytes, "Stand-In %u", device->index);
  return swell::nvml::kSuccess;
}

EXPORT int nvmlDeviceGetNvLinkState(swell::nvml::Device device, unsigned link, int* active) {
  *active = link < links_of(device->index).size() ? 1 : 0;
  return swell::nvml::kSuccess;
}

EXPORT int nvmlDeviceGetNvLinkVersion(swell::nvml::Device device, unsigned link,
                                      unsigned* version) {
  *version = links_of(device->index).at(link).version;
  return swell::nvml::kSuccess;
}

EXPORT int nvmlDeviceGetFieldValues(swell::nvml::Device device, int number,
                                    swell::nvml::FieldValue* values) {
  const char* speed = std::getenv("STAND_IN_NVLINK_MBPS");
  for (auto* each = values; each != values + number; ++each) {
    each->status = each->field == swell::nvml::kLinkSpeed && speed != nullptr &&
                           each->scope < links_of(device->index).size()
                       ? swell::nvml::kSuccess
                       : kNotSupported;
    each->type = swell::nvml::kUnsignedInt;
    if (each->status == swell::nvml::kSuccess)
      each->value.number = static_cast<unsigned>(std::atoi(speed));
  }
  return swell::nvml::kSuccess;
}

EXPORT int nvmlDeviceGetGpuFabricInfoV(swell::nvml::Device, swell::nvml::FabricInfo* info) {
  if (info->version != swell::nvml::FabricInfo::kVersion) return kInvalidArgument;
  unsigned last = 0, clique = 0;
  const char* set = std::getenv("STAND_IN_FABRIC");
  if (set == nullptr || std::sscanf(set, "%u:%u", &last, &clique) != 2) return kNotSupported;
  info->cluster[15] = static_cast<unsigned char>(last);
  info->clique = clique;
  info->state = swell::nvml::kFabricCompleted;
  return swell::nvml::kSuccess;
}

EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(swell::nvml::Device device, unsigned link,
                                               swell::nvml::PciInfo* pci) {
  if (links_of(device->index).at(link).other >= 64) return kNotSupported;
  fill(*pci, links_of(device->index).at(link).other);
  return swell::nvml::kSuccess;
}
}
