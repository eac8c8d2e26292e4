// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "profiler/device_clock.h"
#include "profiler/span.h"

namespace swell::profiler {

/// Takes the regions of one rank's steps. begin(), end() and observe_memory() may be called by any
/// thread at any time, step() and next() by one. Without a device, a region costs two readings of
/// the clock and takes no memory after the first steps; with one, two events more. Nothing here
/// waits for a device.
class Recorder {
 public:
  static constexpr std::size_t kMaxSpans = std::size_t{1} << 16;  ///< of a step
  static constexpr std::size_t kMaxOpen = 64;
  static constexpr std::size_t kMaxPending = 8;  ///< steps that wait for the device's times
  static constexpr int kFull = -1;               ///< begin(): kMaxOpen are open, or kMaxSpans there
  static constexpr int kNoDevice = -2;           ///< begin(): a stream, but no driver
  /// begin(): of a step that rests. end() takes it.
  static constexpr int kNotTaken = std::numeric_limits<int>::max();

  using Clock = std::int64_t (*)() noexcept;  ///< nanoseconds
  static std::int64_t host_clock() noexcept;
  using OpenDevice = Result<std::unique_ptr<DeviceClock>> (*)();
  static Result<std::unique_ptr<DeviceClock>> cuda_clock() { return open_cuda_clock(); }

  explicit Recorder(Clock clock = &host_clock, OpenDevice open_device = &cuda_clock);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Opens a region; 0 or more is its number.
  int begin(const Opening& opening);
  /// Closes it, on any thread; false where no such region is open. `allocated_bytes`: of device
  /// memory now; 0: not known.
  bool end(int region, std::uint64_t allocated_bytes = 0);
  /// Takes the peak of memory that the program's allocator reports.
  void observe_memory(std::uint64_t peak_bytes);

  /// The step is over. Regions that are still open are closed by nobody. With `rests` none is taken
  /// in the next step: neither a clock is read nor an event recorded.
  void step(std::uint64_t number, bool rests = false);
  /// The oldest step whose times are all known, and then no more; nullptr: none now. Valid until
  /// the next call.
  const Step* next();

  std::uint64_t peak_bytes() const;
  /// Returns why one step at least has no device times; empty: none was asked for, or all have
  /// them.
  std::string device_problem() const;

 private:
  /// A step that is over, with its events.
  struct Pending {
    Step step;
    std::vector<void*> last_events;  ///< of each stream, by when all of its others have passed
  };
  void* mark(void* stream);
  void give_back_events(Step& step);
  bool resolve(Pending& pending);

  const Clock clock_;
  const OpenDevice open_device_;
  mutable std::mutex mutex_;  ///< guards all below
  std::unique_ptr<DeviceClock> device_;
  std::string device_problem_;
  Step current_;
  bool rests_ = false;              ///< no region is taken in this step
  std::vector<std::int32_t> open_;  ///< indexes of current_.spans, as they were opened
  int generation_ = 0;              ///< of steps, as it stands in regions' numbers
  std::deque<Pending> pending_;
  std::vector<Pending> spare_;  ///< whose memory is used again
  Pending given_;               ///< by next()
  std::uint64_t peak_bytes_ = 0;
};

}  // namespace swell::profiler
