// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

// Declares the part of CUDA's driver API (CUDA 11.4 or later) that Swell uses, from its
// documentation, so that no header of CUDA is needed. tests/unit/runtime/vendor_headers_test.cc
// compares it with the real headers. Results are 0 or an error's number.
namespace swell::runtime::cuda {

struct Location {
  int type = 1;  ///< CU_MEM_LOCATION_TYPE_DEVICE
  int id = 0;
};
struct AllocationProperties {
  int type = 1;          ///< CU_MEM_ALLOCATION_TYPE_PINNED
  int handle_types = 1;  ///< CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  Location location;
  void* windows = nullptr;
  std::uint8_t compression = 0;
  std::uint8_t for_network_cards = 0;  ///< gpuDirectRDMACapable
  std::uint8_t more_flags[6] = {};
};
static_assert(sizeof(AllocationProperties) == 32);
/// A copy of a matrix with rows `pitch` bytes apart.
struct MatrixCopy {
  struct End {
    std::size_t x_bytes = 0, y = 0;
    unsigned memory_type = 0;  ///< kHostMemory or kDeviceMemory
    void* host = nullptr;
    std::uint64_t device = 0;
    void* array = nullptr;
    std::size_t pitch = 0;
  } from, to;
  std::size_t row_bytes = 0, rows = 0;
};
static_assert(sizeof(MatrixCopy) == 128);
/// Names an allocation of cuMemAlloc() to other processes of the node.
struct IpcHandle {
  char bytes[64] = {};
};
struct AccessDescription {
  Location location;
  int flags = 3;  ///< CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};
static_assert(sizeof(AccessDescription) == 12);

inline constexpr int kPosixDescriptor = 1;
inline constexpr int kMinimumGranularity = 0;
inline constexpr unsigned kNonBlockingStream = 1;
inline constexpr int kRelaxedCapture = 2;       ///< CU_STREAM_CAPTURE_MODE_RELAXED
inline constexpr unsigned kForPeers = 1;        ///< CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
inline constexpr unsigned kForAllContexts = 1;  ///< CU_MEMHOSTREGISTER_PORTABLE
inline constexpr int kMemoryManagementSupported = 102, kDescriptorSupported = 103,
                     kNetworkCardsSupported = 110;             // attributes
inline constexpr int kOutOfMemory = 2, kNotReady = 600;        // errors
inline constexpr int kMemoryTypeOf = 2, kOrdinalOf = 9;        // attributes of addresses
inline constexpr unsigned kHostMemory = 1, kDeviceMemory = 2;  // values of kMemoryTypeOf
/// The minimum over GPUs of the largest allowed pitch (CU_DEVICE_ATTRIBUTE_MAX_PITCH).
inline constexpr std::uint64_t kMostPitch = 0x7fffffff;

using Init = int (*)(unsigned);
using GetErrorName = int (*)(int, const char**);
using DeviceGetCount = int (*)(int*);
using DeviceGet = int (*)(int*, int);
using DeviceGetAttribute = int (*)(int*, int, int);
using DeviceGetUuid = int (*)(std::uint8_t*, int);
using ContextRetain = int (*)(void**, int);
using ContextRelease = int (*)(int);
using ContextSet = int (*)(void*);
using ContextPush = int (*)(void*);
using ContextPop = int (*)(void**);
using ContextSynchronize = int (*)();
using ExchangeCaptureMode = int (*)(int*);
using StreamCreate = int (*)(void**, unsigned);
using StreamSynchronize = int (*)(void*);
using StreamQuery = int (*)(void*);
using StreamDestroy = int (*)(void*);
using CopyWithin = int (*)(std::uint64_t, std::uint64_t, std::size_t, void*);
using CopyToHost = int (*)(void*, std::uint64_t, std::size_t, void*);
using CopyToDevice = int (*)(std::uint64_t, const void*, std::size_t, void*);
using CopyMatrix = int (*)(const MatrixCopy*, void*);
using SetBytes = int (*)(std::uint64_t, unsigned char, std::size_t, void*);
using HostRegister = int (*)(void*, std::size_t, unsigned);
using HostUnregister = int (*)(void*);
using GetInfo = int (*)(std::size_t*, std::size_t*);
using Granularity = int (*)(std::size_t*, const AllocationProperties*, int);
using Create = int (*)(std::uint64_t*, std::size_t, const AllocationProperties*, std::uint64_t);
using Export = int (*)(void*, std::uint64_t, int, std::uint64_t);
using Import = int (*)(std::uint64_t*, void*, int);
using Release = int (*)(std::uint64_t);
using RetainHandle = int (*)(std::uint64_t*, void*);
using AddressRange = int (*)(std::uint64_t*, std::size_t*, std::uint64_t);
using IpcGet = int (*)(IpcHandle*, std::uint64_t);
using IpcOpen = int (*)(std::uint64_t*, IpcHandle, unsigned);
using IpcClose = int (*)(std::uint64_t);
using Reserve = int (*)(std::uint64_t*, std::size_t, std::size_t, std::uint64_t, std::uint64_t);
using Free = int (*)(std::uint64_t, std::size_t);
using Map = int (*)(std::uint64_t, std::size_t, std::size_t, std::uint64_t, std::uint64_t);
using Unmap = int (*)(std::uint64_t, std::size_t);
using PointerAttribute = int (*)(void*, int, std::uint64_t);
using Allocate = int (*)(std::uint64_t*, std::size_t);
using FreeAllocated = int (*)(std::uint64_t);
using ModuleLoad = int (*)(void**, const void*);
using ModuleUnload = int (*)(void*);
using ModuleFunction = int (*)(void**, void*, const char*);
using Launch = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       void*, void**, void**);
using SetAccess = int (*)(std::uint64_t, std::size_t, const AccessDescription*, std::size_t);

}  // namespace swell::runtime::cuda
