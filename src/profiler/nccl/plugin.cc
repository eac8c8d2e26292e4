// SPDX-License-Identifier: BSD-3-Clause
// The symbols by which NCCL finds a profiler, one for each version of its interface. In all of them
// the stop of a collective means that it was enqueued; the events of its kernels' channels tell
// when it ran, and name the collective as their parent. Only init can return an error, so NCCL is
// never disturbed.
#include <ctime>

#include "profiler/nccl/abi.h"
#include "profiler/nccl/operations.h"

namespace {

using namespace swell::profiler::nccl;

std::int64_t host_clock() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

/// Returns the operations of the process. Never destroyed: NCCL's threads may outlive static
/// objects.
Operations& operations() {
  static auto* const made = new Operations(&host_clock);
  return *made;
}

/// Returns the context that NCCL keeps for a communicator: its number of ranks, stored in the
/// pointer.
void* context_of(int ranks) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(ranks)); }

/// Runs `body` and catches every exception, because none may pass into NCCL.
template <typename Body>
int guarded(int failed, Body&& body) noexcept {
  try {
    body();
    return kSuccess;
  } catch (...) { return failed; }
}
constexpr int kSystemError = 2;  // returned by init only: NCCL then runs without a profiler

int join(void** context, int* mask, int ranks) {
  if (context == nullptr || mask == nullptr) return kSystemError;
  *context = context_of(ranks);
  return guarded(kSystemError, [&] { operations().join(mask); });
}
int init3(void** context, int* mask) { return join(context, mask, 0); }
int init4(void** context, int* mask, const char*, std::uint64_t, int, int ranks, int, Logger) {
  return join(context, mask, ranks);
}
int init5(void** context, std::uint64_t, int* mask, const char*, int, int ranks, int, Logger) {
  return join(context, mask, ranks);
}

template <typename Event, bool kHasDeviceTime>
int start(void* context, void** handle, Event* event) {
  if (handle == nullptr) return kSuccess;
  *handle = nullptr;
  if (event == nullptr) return kSuccess;
  return guarded(kSuccess, [&] {
    const auto ranks = static_cast<int>(reinterpret_cast<std::uintptr_t>(context));
    Operations::Handle made = 0;
    if (event->type == kCollective) {
      const auto& seen = event->collective;
      made = operations().enqueue(seen.function, seen.count, seen.datatype, ranks);
    } else if (event->type == kPointToPoint) {
      const auto& seen = event->point_to_point;
      made = operations().enqueue(seen.function, seen.count, seen.datatype, ranks);
    } else if (event->type == kKernelChannel) {
      std::uint64_t start_ns = 0;
      if constexpr (kHasDeviceTime) start_ns = event->kernel.start_ns;
      made = operations().begin_kernel(reinterpret_cast<std::uintptr_t>(event->parent), start_ns);
    }
    *handle = reinterpret_cast<void*>(made);
  });
}

int stop(void* handle) {
  return guarded(kSuccess, [&] { operations().stop(reinterpret_cast<std::uintptr_t>(handle)); });
}

int record_state(void* handle, int state, StateArguments4* arguments) {
  return guarded(kSuccess, [&] {
    if (state == kKernelChannelStop && arguments != nullptr)
      operations().end_kernel_at(reinterpret_cast<std::uintptr_t>(handle),
                                 arguments->kernel_stop_ns);
  });
}
/// Does nothing: in version 3 a kernel has no states.
int record_state3(void*, int, StateArguments4*) { return kSuccess; }

int finalize(void*) {
  return guarded(kSuccess, [] { operations().leave(); });
}

void set_sampling(bool on) { operations().set_sampling(on); }
Totals totals() { return operations().totals(); }
int sampled(Operation* into, int max) { return operations().sampled(into, max); }
void clear() { operations().clear(); }

constexpr const char* kName = "swell";

}  // namespace

#define SWELL_EXPORT extern "C" __attribute__((visibility("default"))) const

SWELL_EXPORT Profiler3 ncclProfiler_v3;
SWELL_EXPORT Profiler4 ncclProfiler_v4;
SWELL_EXPORT Profiler5 ncclProfiler_v5, ncclProfiler_v6;
SWELL_EXPORT Profiler7 ncclProfiler_v7;
SWELL_EXPORT Sampling swell_nccl_profiler_v1;

const Profiler3 ncclProfiler_v3{kName, &init3,         &start<Event3, false>,
                                &stop, &record_state3, &finalize};
const Profiler4 ncclProfiler_v4{kName, &init4,        &start<Event4, true>,
                                &stop, &record_state, &finalize};
const Profiler5 ncclProfiler_v5{kName, &init5,        &start<Event5, true>,
                                &stop, &record_state, &finalize};
const Profiler5 ncclProfiler_v6 = ncclProfiler_v5;
const Profiler7 ncclProfiler_v7{ncclProfiler_v5};
const Sampling swell_nccl_profiler_v1{&set_sampling, &totals, &sampled, &clear};
