// SPDX-License-Identifier: GPL-2.0-or-later
// Stands in for NVIDIA's management library: STAND_IN_COMPUTE_MODES="0,3" are two GPUs in these
// compute modes; -1 is one that may not be opened. STAND_IN_MINORS="1,0" are their device numbers,
// STAND_IN_SECONDS the time that initialization takes.
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>

#include "core/nvml_api.h"

namespace swell::nvml {

struct nvmlDevice_st {
  int mode;
  unsigned minor;
};

}  // namespace swell::nvml

namespace {

constexpr int kInvalidArgument = 2;
swell::nvml::nvmlDevice_st devices[64];
unsigned count = 0;

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
}
