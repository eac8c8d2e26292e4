// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

// NVIDIA's management library as nvml.h declares it: Swell is built without the driver, and finds
// the functions by name where libnvidia-ml.so.1 is installed. vendor_headers_test compares this
// with nvml.h where that is present.
namespace swell::nvml {

using Device = struct nvmlDevice_st*;
struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, ids, subsystem;
  char bus_id[32];
};
constexpr int kSuccess = 0;
/// Values of nvmlComputeMode_t.
constexpr int kProhibited = 2, kExclusiveProcess = 3;
/// Values of nvmlNvlinkVersion_t, which numbers the versions in their order.
enum NvLink : unsigned {
  kNvLink1_0 = 1,
  kNvLink2_0,
  kNvLink2_2,
  kNvLink3_0,
  kNvLink3_1,
  kNvLink4_0,
  kNvLink5_0
};

using Init = int();
using DeviceGetCount = int(unsigned*);
using DeviceGetHandleByIndex = int(unsigned, Device*);
using DeviceGetPciInfo = int(Device, PciInfo*);
using DeviceGetName = int(Device, char*, unsigned);
using DeviceGetNvLinkState = int(Device, unsigned, int*);
using DeviceGetNvLinkVersion = int(Device, unsigned, unsigned*);
using DeviceGetNvLinkRemotePciInfo = int(Device, unsigned, PciInfo*);
using DeviceGetComputeMode = int(Device, int*);
using DeviceGetMinorNumber = int(Device, unsigned*);

}  // namespace swell::nvml
