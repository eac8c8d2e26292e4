// SPDX-License-Identifier: GPL-2.0-or-later
// Stands in for NVIDIA's management library on machines without it: one GPU in exclusive mode, with an NVLink 4.0 and one of a version that nobody knows, to itself.
// Made by pack.sh, for run.sh --stand-in; declared as in src/core/nvml_api.h.
#include <string.h>

struct pci {
  char legacy[16];
  unsigned domain, bus, device, ids, subsystem;
  char bus_id[32];
};

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 1, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) { return *device = device, index != 0; }
int nvmlDeviceGetPciInfo_v3(void* device, struct pci* place) { return memset(place, 0, sizeof *place), (void)device, 0; }
int nvmlDeviceGetName(void* device, char* name, unsigned length) { return strncpy(name, "stand-in", length), (void)device, 0; }
int nvmlDeviceGetNvLinkState(void* device, unsigned link, int* active) { return *active = link < 2, (void)device, 0; }
int nvmlDeviceGetNvLinkVersion(void* device, unsigned link, unsigned* version) { return *version = link == 0 ? 6 : 99, (void)device, 0; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, struct pci* other) { return (void)link, nvmlDeviceGetPciInfo_v3(device, other); }
int nvmlDeviceGetComputeMode(void* device, int* mode) { return *mode = 3, (void)device, 0; }
int nvmlDeviceGetMinorNumber(void* device, unsigned* number) { return *number = 0, (void)device, 0; }
