// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

// Declares the part of CUPTI (CUDA 11.4 or later) that Swell calls, from its documentation, so that
// no header of CUDA is needed. tests/unit/runtime/vendor_headers_test.cc compares it with the real
// ones. Results are 0 or an error's number.
namespace swell::profiler::cupti {

inline constexpr unsigned kConcurrentKernel = 10;  // a kind of activity
inline constexpr int kAnotherSubscriber = 39;      // an error code

/// The members of CUPTI's records that Swell reads: the kind of any record, and those of a kernel
/// up to its name, which are the same from version 4 of the record on.
struct Record {
  std::uint32_t kind;
};
struct KernelRecord {
  std::uint32_t kind;
  std::uint8_t cache, shared_memory;
  std::uint16_t registers;
  std::uint32_t global_cache_requested, global_cache_executed;
  std::uint64_t start, end, completed;
  std::uint32_t device, context, stream;
  std::int32_t grid[3], block[3], static_shared, dynamic_shared;
  std::uint32_t local_of_thread, local_of_all, correlation;
  std::int64_t grid_id;
  const char* name;
};
static_assert(offsetof(KernelRecord, start) == 16 && offsetof(KernelRecord, stream) == 48 &&
              offsetof(KernelRecord, name) == 104);

using BufferRequested = void (*)(std::uint8_t** buffer, std::size_t* size, std::size_t* records);
using BufferCompleted = void (*)(void* context, std::uint32_t stream, std::uint8_t* buffer,
                                 std::size_t size, std::size_t valid);
using Subscribe = int (*)(void** subscriber, void* callback, void* data);
using Unsubscribe = int (*)(void* subscriber);
using RegisterCallbacks = int (*)(BufferRequested, BufferCompleted);
using Enable = int (*)(unsigned kind);
using Flush = int (*)(std::uint32_t flags);
using NextRecord = int (*)(std::uint8_t* buffer, std::size_t valid, Record** record);
using Timestamp = int (*)(std::uint64_t* ns);

}  // namespace swell::profiler::cupti
