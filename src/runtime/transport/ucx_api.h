// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>

/// Declares the part of UCX's C interface that Swell uses, so that its headers are not needed.
/// Structs say which of their fields are set, so that later releases, whose structs are longer,
/// read them alike. tests/unit/runtime/ucx_test.cc compares them with the headers, if these are
/// installed.
namespace swell::runtime::ucx {

using Status = signed char;  ///< ucs_status_t
constexpr Status kOk = 0, kInProgress = 1;
using StatusPointer = void*;  ///< ucs_status_ptr_t: nothing, a request, or an error
constexpr std::intptr_t kLastError = -100;

inline bool is_error(StatusPointer pointer) noexcept {
  const auto value = reinterpret_cast<std::intptr_t>(pointer);
  return value < 0 && value >= kLastError;
}
inline Status error_of(StatusPointer pointer) noexcept {
  return static_cast<Status>(reinterpret_cast<std::intptr_t>(pointer));
}

/// ucp_params_t
struct ContextParams {
  static constexpr std::uint64_t kFeatures = 1 << 0, kSharedByThreads = 1 << 5;  // in field_mask
  static constexpr std::uint64_t kTags = 1 << 0;                                 // in features
  std::uint64_t field_mask = 0, features = 0;
  std::size_t request_size = 0;
  void *request_init = nullptr, *request_cleanup = nullptr;
  std::uint64_t tag_sender_mask = 0;
  int mt_workers_shared = 0;
  std::size_t reserved[8] = {};
};

/// ucp_worker_params_t
struct WorkerParams {
  static constexpr std::uint64_t kThreadMode = 1 << 0;
  static constexpr int kSerialized = 1;
  std::uint64_t field_mask = 0;
  int thread_mode = 0;
  std::size_t reserved[32] = {};
};

/// ucp_ep_params_t
struct EndpointParams {
  static constexpr std::uint64_t kRemoteAddress = 1 << 0;
  std::uint64_t field_mask = 0;
  const void* address = nullptr;
  std::size_t reserved[24] = {};
};

/// ucp_tag_recv_info_t
struct Received {
  std::uint64_t sender_tag = 0;
  std::size_t length = 0;
};

/// ucp_request_param_t
struct RequestParams {
  static constexpr std::uint32_t kMemoryType = 1 << 6, kNotAtOnce = 1 << 16;
  std::uint32_t op_attr_mask = 0, flags = 0;
  void *request = nullptr, *callback = nullptr;
  std::uint64_t datatype = 0;
  void *user_data = nullptr, *reply_buffer = nullptr;
  int memory_type = 0;  ///< the host's
  void* reserved[9] = {};
};

}  // namespace swell::runtime::ucx
