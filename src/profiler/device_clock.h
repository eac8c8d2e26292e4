// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/result.h"

namespace swell::profiler {

/// Marks points in a device's streams of work, and reads their times later. Nothing here waits for
/// the device. Calls are made by one thread at a time, which has the streams' context current
/// where it records.
class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  /// Marks the end of what was put on `stream` so far; nullptr: the driver refused.
  virtual void* record(void* stream) noexcept = 0;
  /// Returns whether work on `stream` is captured into a graph now: an event would be part of that.
  virtual bool is_captured(void* stream) noexcept = 0;
  enum class State { pending, passed, failed };
  virtual State state(void* event) noexcept = 0;
  /// Returns the time between two events that have passed.
  virtual std::optional<std::int64_t> ns_between(void* first, void* second) noexcept = 0;
  /// Takes an event back for later use.
  virtual void give_back(void* event) noexcept = 0;
};

/// CUDA events of the driver's library `path`, opened when it is needed. The error says why there
/// is none.
Result<std::unique_ptr<DeviceClock>> open_cuda_clock(const std::string& path = "libcuda.so.1");

}  // namespace swell::profiler
