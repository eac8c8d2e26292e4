// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace swell::profiler::nccl {

/// Totals of a process's collectives and sends.
struct Totals {
  std::uint64_t operations = 0;  ///< enqueued, of all
  // Those that were enqueued while kernels were sampled:
  std::uint64_t sampled_operations = 0;
  std::uint64_t sampled_bytes = 0;  ///< counts by the size of their elements
  std::uint64_t device_ns = 0;      ///< first channel's start to last one's end, added up
  std::uint64_t lost = 0;           ///< channels' kernels whose end came too late to be matched
};

/// An operation that was enqueued while kernels were sampled.
struct Operation {
  char function[24];
  std::uint64_t bytes;
  std::int32_t ranks;                     ///< of its communicator; 0: not told (version 3)
  std::int64_t enqueued_ns, returned_ns;  ///< by the host's monotonic clock
  std::uint64_t device_ns;                ///< 0: no kernel of it has ended
};

/// Interface of the plugin for libswell, where both are in one process: symbol
/// "swell_nccl_profiler_v1". Any thread.
struct Sampling {
  /// Kernels of operations that are enqueued from now on are timed, or no more.
  void (*set)(bool on);
  Totals (*totals)();
  /// The sampled operations that are still known, oldest first; returns how many were written.
  int (*operations)(Operation* into, int max);
  /// Forgets sampled operations and totals.
  void (*clear)();
};

}  // namespace swell::profiler::nccl
