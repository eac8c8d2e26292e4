// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>

namespace swell::runtime {

/// The first page of an arena: what a program reads between two steps without a system call.
struct ControlPage {
  /// Written by the shim: the step at whose boundary the program stops; 0: none.
  std::atomic<std::uint64_t> stop_at;
  std::atomic<std::uint64_t> step;  ///< written by the program: the last boundary it passed
  /// Request written by the shim and taken by the program: kStopRequest or kCheckpointRequest; 0:
  /// none.
  std::atomic<std::uint64_t> request;
  /// Written by the shim: the generation for which a program that stays must prepare; 0: none.
  std::atomic<std::uint64_t> next;
  /// Written by the shim: the last generation whose program has started beside this one; 0: none.
  std::atomic<std::uint64_t> beside;
  /// Written by the program before `step`: when it passed that boundary, in nanoseconds of the
  /// host's steady clock; 0 from an older libswell, which does not write it.
  std::atomic<std::uint64_t> passed_ns;
};
/// The values of swell_action_t in swell.h.
inline constexpr std::uint64_t kStopRequest = 2, kCheckpointRequest = 3;
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "two processes share it");

}  // namespace swell::runtime
