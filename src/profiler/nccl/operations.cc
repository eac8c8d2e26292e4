// SPDX-License-Identifier: BSD-3-Clause
#include "profiler/nccl/operations.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/mutex.h"
#include "profiler/nccl/abi.h"

namespace swell::profiler::nccl {

namespace {

constexpr std::uintptr_t kOperationTag = 1, kKernelTag = 2, kTags = 4;

/// Returns the handle of the `count`th operation or kernel.
constexpr std::uintptr_t handle_of(std::uint64_t count, std::uintptr_t tag) {
  return static_cast<std::uintptr_t>(count) * kTags + tag;
}
constexpr std::size_t slot_of(std::uintptr_t handle, std::size_t slots) {
  return static_cast<std::size_t>(handle / kTags) % slots;
}

}  // namespace

std::uint64_t bytes_of_datatype(const char* name) noexcept {
  if (name == nullptr) return 1;
  const char* digit = name + std::strcspn(name, "0123456789");
  std::uint64_t bits = 0;
  for (; *digit >= '0' && *digit <= '9' && bits < 100; ++digit)
    bits = bits * 10 + static_cast<std::uint64_t>(*digit - '0');
  return std::max<std::uint64_t>(1, bits / 8);
}

/// Writes the masks atomically, because NCCL's threads read them at the same time.
void Operations::write_masks() const {
  const auto wanted =
      static_cast<int>(kCollective | kPointToPoint | (is_sampling_ ? kKernelChannel : 0));
  for (int* mask : masks_) std::atomic_ref<int>(*mask).store(wanted, std::memory_order_relaxed);
}

void Operations::join(int* mask) {
  Lock lock(mutex_);
  ++communicators_;
  if (std::find(masks_.begin(), masks_.end(), mask) == masks_.end()) masks_.push_back(mask);
  write_masks();
}

void Operations::leave() {
  Lock lock(mutex_);
  // NCCL has one mask for all communicators; it may be written while any of them exists.
  if (--communicators_ == 0) masks_.clear();
}

Operations::Handle Operations::enqueue(const char* function, std::uint64_t count,
                                       const char* datatype, int ranks) {
  const std::int64_t now = clock_();
  Lock lock(mutex_);
  const Handle handle = handle_of(++next_slot_, kOperationTag);
  Slot& slot = slots_[slot_of(handle, kKept)];
  slot = Slot();
  slot.handle = handle;
  slot.is_sampled = is_sampling_;
  if (function != nullptr)
    std::strncpy(slot.operation.function, function, sizeof slot.operation.function - 1);
  slot.operation.bytes = count * bytes_of_datatype(datatype);
  slot.operation.ranks = ranks;
  slot.operation.enqueued_ns = slot.operation.returned_ns = now;
  ++totals_.operations;
  if (!is_sampling_) return handle;
  ++totals_.sampled_operations;
  totals_.sampled_bytes += slot.operation.bytes;
  return handle;
}

Operations::Handle Operations::begin_kernel(Handle operation, std::uint64_t start_ns) {
  const std::int64_t now = clock_();
  Lock lock(mutex_);
  const Handle handle = handle_of(++next_kernel_, kKernelTag);
  Kernel& kernel = kernels_[slot_of(handle, kKernels)];
  kernel = {handle, operation, start_ns != 0 ? start_ns : static_cast<std::uint64_t>(now), 0,
            start_ns == 0};
  return handle;
}

void Operations::end_kernel_at(Handle handle, std::uint64_t stop_ns) {
  Lock lock(mutex_);
  Kernel& kernel = kernels_[slot_of(handle, kKernels)];
  if (kernel.handle == handle) kernel.stop_ns = stop_ns;
}

void Operations::stop(Handle handle) {
  const std::int64_t now = clock_();
  Lock lock(mutex_);
  if (handle % kTags == kOperationTag) {
    Slot& slot = slots_[slot_of(handle, kKept)];
    if (slot.handle == handle) slot.operation.returned_ns = now;
    return;
  }
  if (handle % kTags != kKernelTag) return;
  Kernel& kernel = kernels_[slot_of(handle, kKernels)];
  if (kernel.handle != handle) {
    ++totals_.lost;
    return;
  }
  kernel.handle = 0;
  const std::uint64_t stop_ns = kernel.by_host ? static_cast<std::uint64_t>(now) : kernel.stop_ns;
  Slot& slot = slots_[slot_of(kernel.operation, kKept)];
  if (slot.handle != kernel.operation || stop_ns < kernel.start_ns) {
    ++totals_.lost;
    return;
  }
  if (!slot.is_sampled) return;  // enqueued before sampling was turned on
  slot.first_ns = std::min(slot.first_ns, kernel.start_ns);
  slot.last_ns = std::max(slot.last_ns, stop_ns);
  // Channels overlap: the operation's time is from the first channel's start to the last channel's
  // end.
  const std::uint64_t took = slot.last_ns - slot.first_ns;
  totals_.device_ns += took - slot.operation.device_ns;
  slot.operation.device_ns = took;
}

void Operations::set_sampling(bool on) {
  Lock lock(mutex_);
  is_sampling_ = on;
  write_masks();
}

Totals Operations::totals() const {
  Lock lock(mutex_);
  return totals_;
}

int Operations::sampled(Operation* into, int max) const {
  Lock lock(mutex_);
  const std::uint64_t oldest = next_slot_ > kKept ? next_slot_ - kKept + 1 : 1;
  int count = 0;
  for (std::uint64_t at = oldest; at <= next_slot_ && count < max; ++at) {
    const Slot& slot = slots_[slot_of(handle_of(at, kOperationTag), kKept)];
    if (slot.is_sampled) into[count++] = slot.operation;
  }
  return count;
}

void Operations::clear() {
  Lock lock(mutex_);
  for (Slot& slot : slots_) slot.is_sampled = false;
  totals_ = Totals();
}

}  // namespace swell::profiler::nccl
