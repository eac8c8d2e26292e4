// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

// Declares the part of NCCL 2 (2.14 or later) that Swell uses, from its documentation, so that no
// header of NCCL is needed. tests/unit/runtime/vendor_headers_test.cc compares it with the real
// header. Results are 0 or an error's number.
namespace swell::runtime::nccl {

using Status = int;
inline constexpr Status kOk = 0, kInProgress = 7;
inline constexpr int kByte = 1;  ///< ncclUint8

struct UniqueId {
  char bytes[128];
};
/// The struct of release 2.14. Later releases read only `size` bytes, and use defaults for members
/// that are missing, or newer than `version`.
struct Config {
  std::size_t size = 24;
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};
static_assert(sizeof(Config) == 24 && offsetof(Config, blocking) == 16);

using GetVersion = Status (*)(int*);
using GetErrorString = const char* (*)(Status);
using GetUniqueId = Status (*)(UniqueId*);
using CommInitRank = Status (*)(void**, int, UniqueId, int);
using CommInitRankConfig = Status (*)(void**, int, UniqueId, int, Config*);
using CommGetAsyncError = Status (*)(void*, Status*);
using CommAbort = Status (*)(void*);
using Send = Status (*)(const void*, std::size_t, int, int, void*, void*);
using Receive = Status (*)(void*, std::size_t, int, int, void*, void*);
using Group = Status (*)();

}  // namespace swell::runtime::nccl
