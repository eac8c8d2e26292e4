// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/result.h"

namespace swell::profiler {

/// Marks points in a device's streams, and reads their times later. Nothing here waits for the
/// device. One thread at a time; for record() it must have the stream's context current.
class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  /// Marks the end of the work that is on `stream` so far. Returns nullptr if the driver refused.
  virtual void* record(void* stream) noexcept = 0;
  /// Returns whether work on `stream` is being captured into a graph: an event would become part of
  /// the graph.
  virtual bool is_captured(void* stream) noexcept = 0;
  enum class State { pending, passed, failed };
  virtual State state(void* event) noexcept = 0;
  /// Returns the time between two events that have passed.
  virtual std::optional<std::int64_t> ns_between(void* first, void* second) noexcept = 0;
  /// Takes back an event, for reuse.
  virtual void give_back(void* event) noexcept = 0;
};

/// Opens the clock of CUDA events in the driver's library `path`. The error says why there is none.
Result<std::unique_ptr<DeviceClock>> open_cuda_clock(const std::string& path = "libcuda.so.1");

}  // namespace swell::profiler
