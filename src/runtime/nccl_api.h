// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

// The used part of NCCL 2 (2.14 or later), declared anew from its documentation: no header of it is
// needed. tests/unit/runtime/vendor_headers_test.cc compares it with the real one. Results are 0 or
// an error's number.
namespace swell::runtime::nccl {

using Status = int;
inline constexpr Status kOk = 0, kInProgress = 7;
inline constexpr int kByte = 1;  ///< ncclUint8

struct UniqueId {
  char bytes[128];
};
/// As release 2.14 has it: later ones read as much as `size` says, and take what is not there, or
/// newer than `version`, as not said.
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
