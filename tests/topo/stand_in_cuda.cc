// SPDX-License-Identifier: GPL-2.0-or-later
// In place of NVIDIA's driver where a test needs one: STAND_IN_GPUS GPUs (2), whose memory is the
// host's; that of GPU STAND_IN_FULL, if set, is in use.
#include <cstddef>
#include <cstdlib>

namespace {
int last_device = 0;
}

extern "C" {

int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int* count) {
  const char* gpus = std::getenv("STAND_IN_GPUS");
  *count = gpus != nullptr ? std::atoi(gpus) : 2;
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = last_device = index;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = nullptr;
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxSetCurrent(void*) { return 0; }
int cuMemAlloc_v2(unsigned long long* pointer, std::size_t bytes) {
  if (const char* full = std::getenv("STAND_IN_FULL");
      full != nullptr && std::atoi(full) == last_device)
    return 2;
  *pointer = reinterpret_cast<unsigned long long>(std::malloc(bytes));
  return *pointer != 0 ? 0 : 2;
}
int cuMemFree_v2(unsigned long long pointer) {
  std::free(reinterpret_cast<void*>(pointer));
  return 0;
}
int cuStreamCreate(void** stream, unsigned) {
  *stream = std::malloc(1);
  return 0;
}
int cuStreamDestroy_v2(void* stream) {
  std::free(stream);
  return 0;
}
int cuStreamQuery(void*) { return 0; }
int cuGetErrorName(int, const char** name) {
  *name = "CUDA_ERROR_OF_A_STAND_IN";
  return 0;
}

}  // extern "C"
