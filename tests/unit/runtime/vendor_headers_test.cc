// SPDX-License-Identifier: BSD-3-Clause
// Compares Swell's own declarations of CUDA's driver, CUPTI, NCCL and NVML with the real headers,
// where these are installed: a difference does not compile.
#include <criterion/criterion.h>
#include <type_traits>

#if __has_include(<cuda.h>)
#include <cuda.h>
#define SWELL_HAS_CUDA_H
#endif
#if __has_include(<cupti.h>)
#include <cupti.h>
#define SWELL_HAS_CUPTI_H
#endif
#if __has_include(<nccl.h>)
#include <nccl.h>
#define SWELL_HAS_NCCL_H
#endif
#if __has_include(<nvml.h>)
#include <nvml.h>
#define SWELL_HAS_NVML_H
#endif

#include "core/nvml_api.h"
#include "profiler/cuda_events.h"
#include "profiler/cupti_api.h"
#include "runtime/device/cuda_driver.h"
#include "runtime/device/nccl_api.h"

namespace {

/// Are both passed alike: pointers as pointers, whole numbers and enumerations of one size,
/// floating point numbers of one size, structures of one size and alignment?
template <typename Own, typename Theirs>
constexpr bool passed_alike() {
  if constexpr (std::is_void_v<Own> || std::is_void_v<Theirs>)
    return std::is_void_v<Own> && std::is_void_v<Theirs>;
  else if constexpr (std::is_class_v<Own> || std::is_class_v<Theirs>)
    return std::is_class_v<Own> && std::is_class_v<Theirs> && sizeof(Own) == sizeof(Theirs) &&
           alignof(Own) == alignof(Theirs);
  else
    return sizeof(Own) == sizeof(Theirs) && std::is_pointer_v<Own> == std::is_pointer_v<Theirs> &&
           std::is_floating_point_v<Own> == std::is_floating_point_v<Theirs>;
}

template <typename Own, typename Theirs>
struct Same : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
struct Same<R (*)(A...), S (*)(B...)> {
  static constexpr bool arguments() {
    if constexpr (sizeof...(A) == sizeof...(B)) return (passed_alike<A, B>() && ...);
    else return false;
  }
  static constexpr bool value = passed_alike<R, S>() && arguments();
};

static_assert(Same<int (*)(void*, unsigned), unsigned (*)(char**, int)>::value);
static_assert(!Same<int (*)(void*), int (*)(long)>::value);
static_assert(!Same<int (*)(int), int (*)(long)>::value);
static_assert(!Same<int (*)(int), int (*)(int, int)>::value);
static_assert(!Same<void (*)(int), int (*)(int)>::value);
static_assert(!Same<int (*)(int), int (*)(float)>::value);

#ifdef SWELL_HAS_CUDA_H
namespace cuda = swell::runtime::cuda;
namespace events = swell::profiler::cuda;
#define SWELL_SAME(own, theirs) static_assert(Same<own, decltype(&theirs)>::value, #theirs)
SWELL_SAME(cuda::Init, cuInit);
SWELL_SAME(cuda::GetErrorName, cuGetErrorName);
SWELL_SAME(cuda::DeviceGetCount, cuDeviceGetCount);
SWELL_SAME(cuda::DeviceGet, cuDeviceGet);
SWELL_SAME(cuda::DeviceGetAttribute, cuDeviceGetAttribute);
SWELL_SAME(cuda::DeviceGetUuid, cuDeviceGetUuid_v2);
SWELL_SAME(cuda::ContextRetain, cuDevicePrimaryCtxRetain);
SWELL_SAME(cuda::ContextRelease, cuDevicePrimaryCtxRelease_v2);
SWELL_SAME(cuda::ContextPush, cuCtxPushCurrent_v2);
SWELL_SAME(cuda::ContextSet, cuCtxSetCurrent);
SWELL_SAME(cuda::ContextSynchronize, cuCtxSynchronize);
SWELL_SAME(cuda::ExchangeCaptureMode, cuThreadExchangeStreamCaptureMode);
SWELL_SAME(events::ExchangeCaptureMode, cuThreadExchangeStreamCaptureMode);
SWELL_SAME(cuda::ContextPop, cuCtxPopCurrent_v2);
SWELL_SAME(cuda::StreamCreate, cuStreamCreate);
SWELL_SAME(cuda::StreamSynchronize, cuStreamSynchronize);
SWELL_SAME(cuda::StreamQuery, cuStreamQuery);
SWELL_SAME(cuda::StreamDestroy, cuStreamDestroy_v2);
SWELL_SAME(cuda::CopyWithin, cuMemcpyDtoDAsync_v2);
SWELL_SAME(cuda::CopyToHost, cuMemcpyDtoHAsync_v2);
SWELL_SAME(cuda::CopyToDevice, cuMemcpyHtoDAsync_v2);
SWELL_SAME(cuda::CopyMatrix, cuMemcpy2DAsync_v2);
SWELL_SAME(cuda::SetBytes, cuMemsetD8Async);
SWELL_SAME(cuda::GetInfo, cuMemGetInfo_v2);
SWELL_SAME(cuda::HostRegister, cuMemHostRegister);
SWELL_SAME(cuda::HostUnregister, cuMemHostUnregister);
static_assert(cuda::kForAllContexts == CU_MEMHOSTREGISTER_PORTABLE);
SWELL_SAME(cuda::Granularity, cuMemGetAllocationGranularity);
SWELL_SAME(cuda::Create, cuMemCreate);
SWELL_SAME(cuda::Export, cuMemExportToShareableHandle);
SWELL_SAME(cuda::Import, cuMemImportFromShareableHandle);
SWELL_SAME(cuda::Release, cuMemRelease);
SWELL_SAME(cuda::RetainHandle, cuMemRetainAllocationHandle);
SWELL_SAME(cuda::AddressRange, cuMemGetAddressRange_v2);
SWELL_SAME(cuda::IpcGet, cuIpcGetMemHandle);
SWELL_SAME(cuda::IpcOpen, cuIpcOpenMemHandle_v2);
SWELL_SAME(cuda::IpcClose, cuIpcCloseMemHandle);
static_assert(passed_alike<cuda::IpcHandle, CUipcMemHandle>());
static_assert(cuda::kForPeers == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
SWELL_SAME(cuda::Reserve, cuMemAddressReserve);
SWELL_SAME(cuda::Free, cuMemAddressFree);
SWELL_SAME(cuda::Map, cuMemMap);
SWELL_SAME(cuda::Unmap, cuMemUnmap);
SWELL_SAME(cuda::SetAccess, cuMemSetAccess);
SWELL_SAME(cuda::PointerAttribute, cuPointerGetAttribute);
SWELL_SAME(cuda::Allocate, cuMemAlloc_v2);
SWELL_SAME(cuda::FreeAllocated, cuMemFree_v2);
SWELL_SAME(cuda::ModuleLoad, cuModuleLoadData);
SWELL_SAME(cuda::ModuleUnload, cuModuleUnload);
SWELL_SAME(cuda::ModuleFunction, cuModuleGetFunction);
SWELL_SAME(cuda::Launch, cuLaunchKernel);
SWELL_SAME(events::EventCreate, cuEventCreate);
SWELL_SAME(events::EventRecord, cuEventRecord);
SWELL_SAME(events::EventQuery, cuEventQuery);
SWELL_SAME(events::EventElapsedTime, cuEventElapsedTime);
SWELL_SAME(events::EventDestroy, cuEventDestroy_v2);
SWELL_SAME(events::StreamIsCapturing, cuStreamIsCapturing);

static_assert(passed_alike<cuda::Location, CUmemLocation>());
static_assert(offsetof(cuda::Location, id) == offsetof(CUmemLocation, id));
static_assert(passed_alike<cuda::MatrixCopy, CUDA_MEMCPY2D>());
using MatrixEnd = cuda::MatrixCopy::End;
constexpr std::size_t kMatrixTo = offsetof(cuda::MatrixCopy, to);
static_assert(offsetof(MatrixEnd, y) == offsetof(CUDA_MEMCPY2D, srcY));
static_assert(offsetof(MatrixEnd, memory_type) == offsetof(CUDA_MEMCPY2D, srcMemoryType));
static_assert(offsetof(MatrixEnd, host) == offsetof(CUDA_MEMCPY2D, srcHost));
static_assert(offsetof(MatrixEnd, device) == offsetof(CUDA_MEMCPY2D, srcDevice));
static_assert(offsetof(MatrixEnd, array) == offsetof(CUDA_MEMCPY2D, srcArray));
static_assert(offsetof(MatrixEnd, pitch) == offsetof(CUDA_MEMCPY2D, srcPitch));
static_assert(kMatrixTo == offsetof(CUDA_MEMCPY2D, dstXInBytes));
static_assert(kMatrixTo + offsetof(MatrixEnd, memory_type) ==
              offsetof(CUDA_MEMCPY2D, dstMemoryType));
static_assert(kMatrixTo + offsetof(MatrixEnd, pitch) == offsetof(CUDA_MEMCPY2D, dstPitch));
static_assert(offsetof(cuda::MatrixCopy, row_bytes) == offsetof(CUDA_MEMCPY2D, WidthInBytes));
static_assert(offsetof(cuda::MatrixCopy, rows) == offsetof(CUDA_MEMCPY2D, Height));
static_assert(cuda::kHostMemory == CU_MEMORYTYPE_HOST);
static_assert(passed_alike<cuda::AllocationProperties, CUmemAllocationProp>());
static_assert(offsetof(cuda::AllocationProperties, type) == offsetof(CUmemAllocationProp, type));
static_assert(offsetof(cuda::AllocationProperties, handle_types) ==
              offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(cuda::AllocationProperties, location) ==
              offsetof(CUmemAllocationProp, location));
static_assert(offsetof(cuda::AllocationProperties, windows) ==
              offsetof(CUmemAllocationProp, win32HandleMetaData));
static_assert(offsetof(cuda::AllocationProperties, compression) ==
              offsetof(CUmemAllocationProp, allocFlags.compressionType));
static_assert(offsetof(cuda::AllocationProperties, for_network_cards) ==
              offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
static_assert(cuda::kNetworkCardsSupported ==
              CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
static_assert(passed_alike<cuda::AccessDescription, CUmemAccessDesc>());
static_assert(offsetof(cuda::AccessDescription, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(cuda::Location{}.type == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(cuda::AllocationProperties{}.type == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(cuda::AllocationProperties{}.handle_types ==
              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(cuda::AccessDescription{}.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(cuda::kPosixDescriptor == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(cuda::kMinimumGranularity == CU_MEM_ALLOC_GRANULARITY_MINIMUM);
static_assert(cuda::kRelaxedCapture == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(events::kRelaxedCapture == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(cuda::kNonBlockingStream == CU_STREAM_NON_BLOCKING);
static_assert(cuda::kMemoryManagementSupported ==
              CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
static_assert(cuda::kDescriptorSupported ==
              CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
static_assert(cuda::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(cuda::kNotReady == CUDA_ERROR_NOT_READY);
static_assert(events::kNotReady == CUDA_ERROR_NOT_READY);
static_assert(events::kCaptureImplicit == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
static_assert(cuda::kMemoryTypeOf == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(cuda::kOrdinalOf == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(cuda::kDeviceMemory == CU_MEMORYTYPE_DEVICE);
#endif

#ifdef SWELL_HAS_CUPTI_H
namespace cupti = swell::profiler::cupti;
SWELL_SAME(cupti::Subscribe, cuptiSubscribe);
SWELL_SAME(cupti::Unsubscribe, cuptiUnsubscribe);
SWELL_SAME(cupti::RegisterCallbacks, cuptiActivityRegisterCallbacks);
SWELL_SAME(cupti::Enable, cuptiActivityEnable);
SWELL_SAME(cupti::Enable, cuptiActivityDisable);
SWELL_SAME(cupti::Flush, cuptiActivityFlushAll);
SWELL_SAME(cupti::NextRecord, cuptiActivityGetNextRecord);
SWELL_SAME(cupti::Timestamp, cuptiGetTimestamp);
static_assert(Same<cupti::BufferRequested, CUpti_BuffersCallbackRequestFunc>::value);
static_assert(Same<cupti::BufferCompleted, CUpti_BuffersCallbackCompleteFunc>::value);
static_assert(cupti::kConcurrentKernel == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
static_assert(cupti::kAnotherSubscriber == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
static_assert(sizeof(CUpti_ActivityKind) == sizeof(cupti::Record::kind));
// The newest record: what is read must stand where it did in the oldest.
using Kernel = CUpti_ActivityKernel9;
static_assert(offsetof(cupti::KernelRecord, kind) == offsetof(Kernel, kind));
static_assert(offsetof(cupti::KernelRecord, start) == offsetof(Kernel, start));
static_assert(offsetof(cupti::KernelRecord, end) == offsetof(Kernel, end));
static_assert(offsetof(cupti::KernelRecord, device) == offsetof(Kernel, deviceId));
static_assert(offsetof(cupti::KernelRecord, stream) == offsetof(Kernel, streamId));
static_assert(offsetof(cupti::KernelRecord, name) == offsetof(Kernel, name));
#endif

#ifdef SWELL_HAS_NVML_H
namespace nvml = swell::nvml;
#define SWELL_SAME_NVML(own, theirs) static_assert(Same<own*, decltype(&theirs)>::value, #theirs)
SWELL_SAME_NVML(nvml::Init, nvmlInit_v2);
SWELL_SAME_NVML(nvml::Init, nvmlShutdown);
SWELL_SAME_NVML(nvml::DeviceGetCount, nvmlDeviceGetCount_v2);
SWELL_SAME_NVML(nvml::DeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2);
SWELL_SAME_NVML(nvml::DeviceGetPciInfo, nvmlDeviceGetPciInfo_v3);
SWELL_SAME_NVML(nvml::DeviceGetName, nvmlDeviceGetName);
SWELL_SAME_NVML(nvml::DeviceGetNvLinkState, nvmlDeviceGetNvLinkState);
SWELL_SAME_NVML(nvml::DeviceGetNvLinkVersion, nvmlDeviceGetNvLinkVersion);
SWELL_SAME_NVML(nvml::DeviceGetNvLinkRemotePciInfo, nvmlDeviceGetNvLinkRemotePciInfo_v2);
SWELL_SAME_NVML(nvml::DeviceGetFieldValues, nvmlDeviceGetFieldValues);
SWELL_SAME_NVML(nvml::DeviceGetFabricInfo, nvmlDeviceGetGpuFabricInfoV);
SWELL_SAME_NVML(nvml::DeviceGetComputeMode, nvmlDeviceGetComputeMode);
SWELL_SAME_NVML(nvml::DeviceGetMinorNumber, nvmlDeviceGetMinorNumber);
static_assert(nvml::kNvLink1_0 == NVML_NVLINK_VERSION_1_0);
static_assert(nvml::kNvLink2_0 == NVML_NVLINK_VERSION_2_0);
static_assert(nvml::kNvLink2_2 == NVML_NVLINK_VERSION_2_2);
static_assert(nvml::kNvLink3_0 == NVML_NVLINK_VERSION_3_0);
static_assert(nvml::kNvLink3_1 == NVML_NVLINK_VERSION_3_1);
static_assert(nvml::kNvLink4_0 == NVML_NVLINK_VERSION_4_0);
static_assert(nvml::kNvLink5_0 == NVML_NVLINK_VERSION_5_0);
#if NVML_NVLINK_MAX_LINKS > 18  // that is, of CUDA 13.1 or later
static_assert(nvml::kNvLink6_0 == NVML_NVLINK_VERSION_6_0);
#endif
static_assert(nvml::kMaxLinks >= NVML_NVLINK_MAX_LINKS);
static_assert(passed_alike<nvml::FieldValue, nvmlFieldValue_t>());
static_assert(offsetof(nvml::FieldValue, scope) == offsetof(nvmlFieldValue_t, scopeId));
static_assert(offsetof(nvml::FieldValue, type) == offsetof(nvmlFieldValue_t, valueType));
static_assert(offsetof(nvml::FieldValue, status) == offsetof(nvmlFieldValue_t, nvmlReturn));
static_assert(offsetof(nvml::FieldValue, value) == offsetof(nvmlFieldValue_t, value));
static_assert(nvml::kLinkSpeed == NVML_FI_DEV_NVLINK_GET_SPEED);
static_assert(nvml::kUnsignedInt == NVML_VALUE_TYPE_UNSIGNED_INT);
static_assert(nvml::kUnsignedLong == NVML_VALUE_TYPE_UNSIGNED_LONG);
static_assert(nvml::kUnsignedLongLong == NVML_VALUE_TYPE_UNSIGNED_LONG_LONG);
static_assert(passed_alike<nvml::FabricInfo, nvmlGpuFabricInfo_v2_t>());
static_assert(offsetof(nvml::FabricInfo, cluster) == offsetof(nvmlGpuFabricInfo_v2_t, clusterUuid));
static_assert(offsetof(nvml::FabricInfo, clique) == offsetof(nvmlGpuFabricInfo_v2_t, cliqueId));
static_assert(offsetof(nvml::FabricInfo, state) == offsetof(nvmlGpuFabricInfo_v2_t, state));
static_assert(nvml::FabricInfo::kVersion == nvmlGpuFabricInfo_v2);
static_assert(nvml::kFabricCompleted == NVML_GPU_FABRIC_STATE_COMPLETED);
static_assert(passed_alike<nvml::PciInfo, nvmlPciInfo_t>());
static_assert(offsetof(nvml::PciInfo, domain) == offsetof(nvmlPciInfo_t, domain));
static_assert(offsetof(nvml::PciInfo, bus) == offsetof(nvmlPciInfo_t, bus));
static_assert(offsetof(nvml::PciInfo, device) == offsetof(nvmlPciInfo_t, device));
static_assert(offsetof(nvml::PciInfo, bus_id) == offsetof(nvmlPciInfo_t, busId));
static_assert(nvml::kSuccess == NVML_SUCCESS);
static_assert(nvml::kProhibited == NVML_COMPUTEMODE_PROHIBITED);
static_assert(nvml::kExclusiveProcess == NVML_COMPUTEMODE_EXCLUSIVE_PROCESS);
#endif

#ifdef SWELL_HAS_NCCL_H
namespace nccl = swell::runtime::nccl;
#define SWELL_SAME_NCCL(own, theirs) static_assert(Same<own, decltype(&theirs)>::value, #theirs)
SWELL_SAME_NCCL(nccl::GetVersion, ncclGetVersion);
SWELL_SAME_NCCL(nccl::GetErrorString, ncclGetErrorString);
SWELL_SAME_NCCL(nccl::GetUniqueId, ncclGetUniqueId);
SWELL_SAME_NCCL(nccl::CommInitRank, ncclCommInitRank);
SWELL_SAME_NCCL(nccl::CommInitRankConfig, ncclCommInitRankConfig);
SWELL_SAME_NCCL(nccl::CommGetAsyncError, ncclCommGetAsyncError);
SWELL_SAME_NCCL(nccl::CommAbort, ncclCommAbort);
SWELL_SAME_NCCL(nccl::Send, ncclSend);
SWELL_SAME_NCCL(nccl::Receive, ncclRecv);
SWELL_SAME_NCCL(nccl::Group, ncclGroupStart);
SWELL_SAME_NCCL(nccl::Group, ncclGroupEnd);
static_assert(nccl::kOk == ncclSuccess && nccl::kInProgress == ncclInProgress);
static_assert(nccl::kByte == ncclUint8);
static_assert(sizeof(nccl::UniqueId) == sizeof(ncclUniqueId));
static_assert(offsetof(nccl::Config, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(nccl::Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(nccl::Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(nccl::Config, blocking) == offsetof(ncclConfig_t, blocking));
// Versions before 2.28 have no name for the number.
constexpr ncclConfig_t kTheirConfig = NCCL_CONFIG_INITIALIZER;
static_assert(nccl::Config{}.magic == kTheirConfig.magic);
#endif

}  // namespace

Test(vendor_headers, are_compared_where_they_are_installed) {
#ifdef SWELL_HAS_CUDA_H
  cr_log_info("cuda.h %d", CUDA_VERSION);
#else
  cr_skip_test("no cuda.h where this was compiled");
#endif
}
