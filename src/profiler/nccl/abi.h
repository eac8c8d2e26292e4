// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

/// The part of NCCL's profiler interface that Swell uses, in versions 3 to 7, written from NCCL's
/// documentation. Descriptors are only read, so members after the last one that is read are not
/// declared.
namespace swell::profiler::nccl {

/// ncclSuccess.
inline constexpr int kSuccess = 0;

/// Bits of the mask with which a plugin requests events; also the types of these events.
inline constexpr std::uint64_t kCollective = 1 << 1, kPointToPoint = 1 << 2,
                               kKernelChannel = 1 << 6;
/// From version 4 on: the kernel of a channel has ended; its stop time is in the arguments.
inline constexpr int kKernelChannelStop = 22;

struct Collective3 {
  const char* communicator;
  std::uint64_t communicator_hash, sequence;
  const char* function;
  const void* send;
  void* receive;
  std::size_t count;
  int root;
  const char* datatype;
};
struct PointToPoint3 {
  const char* communicator;
  std::uint64_t communicator_hash;
  const char* function;
  void* buffer;
  const char* datatype;
  std::size_t count;
};
struct Collective4 {
  std::uint64_t sequence;
  const char* function;
  const void* send;
  void* receive;
  std::size_t count;
  int root;
  const char* datatype;
};
struct PointToPoint4 {
  const char* function;
  void* buffer;
  const char* datatype;
  std::size_t count;
};
struct KernelChannel4 {
  std::uint8_t channel;
  std::uint64_t start_ns;  ///< time of the GPU's clock
};

/// Description of an event. `Type` has 1 byte up to version 4, and 8 bytes from version 5 on.
template <typename Type, typename Collective, typename PointToPoint>
struct Event {
  Type type;
  void* parent;  ///< for a kernel's channel, the handle of its collective
  int rank;
  union {
    Collective collective;
    PointToPoint point_to_point;
    KernelChannel4 kernel;  ///< version 3 has no start_ns
  };
};
using Event3 = Event<std::uint8_t, Collective3, PointToPoint3>;
using Event4 = Event<std::uint8_t, Collective4, PointToPoint4>;
using Event5 = Event<std::uint64_t, Collective4, PointToPoint4>;  ///< also for versions 6 and 7
static_assert(offsetof(Event3, collective) == 24 && offsetof(Event5, collective) == 24);

/// Arguments of recordEventState(), from version 4 on.
union StateArguments4 {
  std::uint64_t kernel_stop_ns;
};

template <typename Event, typename... Init>
struct Profiler {
  const char* name;
  int (*init)(Init...);
  int (*start)(void* context, void** handle, Event* event);
  int (*stop)(void* handle);
  int (*record_state)(void* handle, int state, StateArguments4* arguments);
  int (*finalize)(void* context);
};
using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);
using Profiler3 = Profiler<Event3, void**, int*>;
using Profiler4 = Profiler<Event4, void**, int*, const char*, std::uint64_t, int, int, int, Logger>;
/// Also for version 6.
using Profiler5 = Profiler<Event5, void**, std::uint64_t, int*, const char*, int, int, int, Logger>;
/// Releases of NCCL differ in whether version 7 ends with a function that gives a hook for kernels,
/// which may be absent.
struct Profiler7 {
  Profiler5 all;
  const void* absent[4] = {};
};

}  // namespace swell::profiler::nccl
