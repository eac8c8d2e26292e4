// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "profiler/device_clock.h"
#include "profiler/span.h"

namespace swell::profiler {

/// Records the regions of one rank's steps. Any thread may call begin(), end() and observe_memory()
/// at any time; one thread calls step() and next(). Without a device, a region costs two readings
/// of the clock, and allocates nothing after the first steps; with a device, it also costs two
/// events. Nothing here waits for a device.
class Recorder {
 public:
  static constexpr std::size_t kMaxSpans = std::size_t{1} << 16;  ///< in a step
  static constexpr std::size_t kMaxOpen = 64;
  /// Maximum number of steps for which the device's times are not known yet.
  static constexpr std::size_t kMaxPending = 8;
  /// Result of begin(): kMaxOpen regions are open, or the step has kMaxSpans.
  static constexpr int kFull = -1;
  /// Result of begin(): a stream was given, but there is no driver.
  static constexpr int kNoDevice = -2;
  /// Result of begin() in a step that is not measured; end() accepts it.
  static constexpr int kNotTaken = std::numeric_limits<int>::max();

  using Clock = std::int64_t (*)() noexcept;  ///< returns nanoseconds
  static std::int64_t host_clock() noexcept;
  using OpenDevice = Result<std::unique_ptr<DeviceClock>> (*)();
  static Result<std::unique_ptr<DeviceClock>> cuda_clock() { return open_cuda_clock(); }

  explicit Recorder(Clock clock = &host_clock, OpenDevice open_device = &cuda_clock);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Opens a region. Returns its number, 0 or more.
  int begin(const Opening& opening);
  /// Closes a region, on any thread. Returns false if no such region is open. `allocated_bytes`:
  /// allocated device memory now; 0: not known.
  bool end(int region, std::uint64_t allocated_bytes = 0);
  /// Takes the peak of memory that the program's allocator reports.
  void observe_memory(std::uint64_t peak_bytes);

  /// Ends the step. Regions that are still open stay incomplete. With `rests` the next step is not
  /// measured: no clock is read and no event recorded.
  void step(std::uint64_t number, bool rests = false);
  /// Returns the oldest step for which all times are known, and removes it; nullptr: there is none
  /// now. Valid until the next call.
  const Step* next();

  std::uint64_t peak_bytes() const;
  /// Returns why at least one step has no device times; empty: none were requested, or all steps
  /// have them.
  std::string device_problem() const;

 private:
  /// A step that is over, with its events.
  struct Pending {
    Step step;
    std::vector<void*> last_events;  ///< of each stream, the event that passes last
  };
  void* mark(void* stream) SWELL_REQUIRES(mutex_);
  void give_back_events(Step& step) SWELL_REQUIRES(mutex_);
  bool resolve(Pending& pending) SWELL_REQUIRES(mutex_);

  const Clock clock_;
  const OpenDevice open_device_;
  mutable Mutex mutex_;
  std::unique_ptr<DeviceClock> device_ SWELL_GUARDED_BY(mutex_);
  std::string device_problem_ SWELL_GUARDED_BY(mutex_);
  Step current_ SWELL_GUARDED_BY(mutex_);
  bool rests_ SWELL_GUARDED_BY(mutex_) = false;  ///< the current step is not measured
  std::vector<std::int32_t> open_
      SWELL_GUARDED_BY(mutex_);  ///< indexes in current_.spans, in the order of opening
  int generation_ SWELL_GUARDED_BY(mutex_) =
      0;  ///< number of the step, as it is encoded in regions' numbers
  std::deque<Pending> pending_ SWELL_GUARDED_BY(mutex_);
  std::vector<Pending> spare_ SWELL_GUARDED_BY(mutex_);  ///< finished steps with memory for reuse
  Pending given_;                                        ///< the step that next() returned
  std::uint64_t peak_bytes_ SWELL_GUARDED_BY(mutex_) = 0;
};

}  // namespace swell::profiler
