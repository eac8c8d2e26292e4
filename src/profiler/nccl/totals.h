// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace swell::profiler::nccl {

/// Totals of a process's collectives and sends.
struct Totals {
  std::uint64_t operations = 0;  ///< number of all enqueued operations
  // Sums over the operations that were enqueued while kernels were sampled:
  std::uint64_t sampled_operations = 0;
  std::uint64_t sampled_bytes = 0;  ///< numbers of elements times their size
  std::uint64_t device_ns = 0;  ///< sum over operations of the time from the first channel's start
                                ///< to the last channel's end
  /// Channels' kernels that ended too late to be matched with their operation.
  std::uint64_t lost = 0;
};

/// An operation that was enqueued while kernels were sampled.
struct Operation {
  char function[24];
  std::uint64_t bytes;
  std::int32_t ranks;                     ///< ranks of its communicator; 0: not known (version 3)
  std::int64_t enqueued_ns, returned_ns;  ///< times of the host's monotonic clock
  std::uint64_t device_ns;                ///< 0: none of its kernels has ended
};

/// Interface of the plugin for libswell, if both are in one process: symbol
/// "swell_nccl_profiler_v1". Thread-safe.
struct Sampling {
  /// Turns the timing of kernels on or off, for operations that are enqueued from now on.
  void (*set)(bool on);
  Totals (*totals)();
  /// Writes the sampled operations that are still remembered, oldest first. Returns how many were
  /// written.
  int (*operations)(Operation* into, int max);
  /// Forgets sampled operations and totals.
  void (*clear)();
};

}  // namespace swell::profiler::nccl
