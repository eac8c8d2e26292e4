// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

namespace swell::profiler {

/// Kinds of regions in a training step.
enum class Kind : std::uint8_t {
  forward,
  backward,
  optimizer,
  tp_allreduce,
  dp_sync,
  send,
  receive,
  head,
  weights  ///< the part of a backward pass that makes the gradients of weights alone
};
inline constexpr int kKinds = 9;
const char* name_of(Kind kind) noexcept;

/// Facts of a region that the program gives when it opens the region; -1 or 0: not given.
struct Opening {
  Kind kind = Kind::forward;
  std::int32_t stage = -1, micro_batch = -1, first_layer = -1, layers = 0;
  std::uint64_t allocated_bytes = 0;  ///< allocated device memory when it opens
  void* stream = nullptr;             ///< CUDA stream on which its work runs
};

/// A region of one step. Times are of the host's monotonic clock, in nanoseconds.
struct Span {
  Opening opening;
  std::uint32_t thread = 0;  ///< numbered from 0, in the order of their first regions
  std::int32_t parent = -1;  ///< the region open on this thread when this one was opened
  bool in_backward = false;  ///< opened within a backward region, not within a forward one
  bool in_forward = false;   ///< opened within a forward region, not within a backward one
  std::int64_t began_ns = 0, ended_ns = -1;
  std::uint64_t allocated_bytes = 0;  ///< when it closed
  void *began_event = nullptr, *ended_event = nullptr;
  /// Times of the device since an event of the step; valid if on_device is set.
  std::int64_t device_began_ns = 0, device_ended_ns = 0;
  bool on_device = false;

  bool is_closed() const noexcept { return ended_ns >= 0; }
  /// Returns when its work began or ended: by the device's clock if it has a stream, otherwise by
  /// the host's.
  std::int64_t began() const noexcept { return on_device ? device_began_ns : began_ns; }
  std::int64_t ended() const noexcept { return on_device ? device_ended_ns : ended_ns; }
  double seconds() const noexcept { return static_cast<double>(ended() - began()) * 1e-9; }
};

/// The regions between two step boundaries, in the order in which they were opened.
struct Step {
  std::uint64_t number = 0;
  std::int64_t began_ns = 0, ended_ns = 0;
  std::vector<Span> spans;
  bool is_whole = true;  ///< false: a region was left out, or its time could not be read
};

}  // namespace swell::profiler
