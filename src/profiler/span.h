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

/// Facts of a region, given by the program as it opens it; -1 or 0: not said.
struct Opening {
  Kind kind = Kind::forward;
  std::int32_t stage = -1, micro_batch = -1, first_layer = -1, layers = 0;
  std::uint64_t allocated_bytes = 0;  ///< of device memory, as it opens
  void* stream = nullptr;             ///< CUDA stream that its work is put on
};

/// A region of one step. Times are of the host's monotonic clock, in nanoseconds.
struct Span {
  Opening opening;
  std::uint32_t thread = 0;  ///< numbered from 0, as they open their first region
  std::int32_t parent = -1;  ///< the region open on this thread when this one was opened
  bool in_backward = false;  ///< opened within a backward region, not within a forward one
  bool in_forward = false;   ///< the other way round
  std::int64_t began_ns = 0, ended_ns = -1;
  std::uint64_t allocated_bytes = 0;  ///< as it closed
  void *began_event = nullptr, *ended_event = nullptr;
  /// Times of the device, since an event of the step; set where on_device is.
  std::int64_t device_began_ns = 0, device_ended_ns = 0;
  bool on_device = false;

  bool is_closed() const noexcept { return ended_ns >= 0; }
  /// When its work ran: by the device's clock where it has a stream.
  std::int64_t began() const noexcept { return on_device ? device_began_ns : began_ns; }
  std::int64_t ended() const noexcept { return on_device ? device_ended_ns : ended_ns; }
  double seconds() const noexcept { return static_cast<double>(ended() - began()) * 1e-9; }
};

/// The regions between two step boundaries, in the order in which they were opened.
struct Step {
  std::uint64_t number = 0;
  std::int64_t began_ns = 0, ended_ns = 0;
  std::vector<Span> spans;
  bool is_whole = true;  ///< false: a region was left out, or its time could not be had
};

}  // namespace swell::profiler
