// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "profiler/nccl/totals.h"

namespace swell::profiler::nccl {

/// Follows the collectives and sends of a process. Thread-safe: the program's threads enqueue
/// operations, NCCL's proxy threads report kernels. Memory is fixed: only the last kKept operations
/// are remembered. Handles are numbers that are looked up, so an outdated handle does no harm.
class Operations {
 public:
  static constexpr std::size_t kKept = 4096, kKernels = 8192;
  using Handle = std::uintptr_t;  ///< 0: none
  using Clock = std::int64_t (*)() noexcept;

  explicit Operations(Clock clock) : clock_(clock) {}

  /// Adds or removes a communicator; NCCL reads from `mask` which events are wanted.
  void join(int* mask);
  void leave();

  Handle enqueue(const char* function, std::uint64_t count, const char* datatype, int ranks);
  /// Notes the start of a kernel. `start_ns` 0: use the host's clock.
  Handle begin_kernel(Handle operation, std::uint64_t start_ns);
  /// Notes the end of a kernel, as the device reports it.
  void end_kernel_at(Handle kernel, std::uint64_t stop_ns);
  /// Ends a handle of either kind. For an operation this means that it is enqueued, not that it has
  /// ended.
  void stop(Handle handle);

  void set_sampling(bool on);
  Totals totals() const;
  int sampled(Operation* into, int max) const;
  void clear();

 private:
  struct Slot {
    Handle handle = 0;
    Operation operation{};
    bool is_sampled = false;
    std::uint64_t first_ns = UINT64_MAX, last_ns = 0;
  };
  struct Kernel {
    Handle handle = 0, operation = 0;
    std::uint64_t start_ns = 0, stop_ns = 0;
    bool by_host = false;
  };
  void write_masks() const SWELL_REQUIRES(mutex_);

  const Clock clock_;
  mutable Mutex mutex_;
  std::vector<int*> masks_ SWELL_GUARDED_BY(mutex_);
  int communicators_ SWELL_GUARDED_BY(mutex_) = 0;
  bool is_sampling_ SWELL_GUARDED_BY(mutex_) = false;
  std::uint64_t next_slot_ SWELL_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_kernel_ SWELL_GUARDED_BY(mutex_) = 0;
  std::array<Slot, kKept> slots_ SWELL_GUARDED_BY(mutex_){};
  std::array<Kernel, kKernels> kernels_ SWELL_GUARDED_BY(mutex_){};
  Totals totals_ SWELL_GUARDED_BY(mutex_);
};

/// Returns the size of an element in bytes, by NCCL's name of its type ("ncclFloat32"); 1 for other
/// names.
std::uint64_t bytes_of_datatype(const char* name) noexcept;

}  // namespace swell::profiler::nccl
