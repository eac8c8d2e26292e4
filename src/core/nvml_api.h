// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

// Declarations of NVIDIA's management library, as in nvml.h: Swell is built without the driver, and
// finds the functions by name if libnvidia-ml.so.1 is installed. vendor_headers_test compares these
// declarations with nvml.h if that is present.
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
/// Values of nvmlNvlinkVersion_t, where newer versions have larger numbers.
enum NvLink : unsigned {
  kNvLink1_0 = 1,
  kNvLink2_0,
  kNvLink2_2,
  kNvLink3_0,
  kNvLink3_1,
  kNvLink4_0,
  kNvLink5_0,
  kNvLink6_0
};
constexpr unsigned kMaxLinks = 36;

/// A request for a value by the number of its field, and the answer.
struct FieldValue {
  unsigned field, scope;  ///< scope: for kLinkSpeed, the link's number
  long long timestamp, latency_us;
  int type, status;
  union {
    double real;
    unsigned number;
    unsigned long long large;
  } value;
};
constexpr unsigned kLinkSpeed = 164;  ///< in 10^6 bytes a second
constexpr int kUnsignedInt = 1, kUnsignedLong = 2, kUnsignedLongLong = 3;  ///< values of `type`

/// The NVLink fabric of a GPU: version 2 of nvml's struct.
struct FabricInfo {
  unsigned version = kVersion;
  unsigned char cluster[16] = {};  ///< zeros if the fabric ends with the node
  int status = 0;
  unsigned clique = 0;
  unsigned char state = 0;
  unsigned health = 0;
  static constexpr unsigned kVersion = 36 | 2u << 24;
};
static_assert(sizeof(FabricInfo) == 36);
constexpr unsigned char kFabricCompleted = 3;

using Init = int();
using DeviceGetCount = int(unsigned*);
using DeviceGetHandleByIndex = int(unsigned, Device*);
using DeviceGetPciInfo = int(Device, PciInfo*);
using DeviceGetName = int(Device, char*, unsigned);
using DeviceGetNvLinkState = int(Device, unsigned, int*);
using DeviceGetNvLinkVersion = int(Device, unsigned, unsigned*);
using DeviceGetNvLinkRemotePciInfo = int(Device, unsigned, PciInfo*);
using DeviceGetFieldValues = int(Device, int, FieldValue*);
using DeviceGetFabricInfo = int(Device, FabricInfo*);
using DeviceGetComputeMode = int(Device, int*);
using DeviceGetMinorNumber = int(Device, unsigned*);

}  // namespace swell::nvml
