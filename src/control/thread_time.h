// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <ctime>
#include <utility>

namespace swell::control {

/// Returns the CPU time that the calling thread has used, in seconds.
inline double thread_time_s() noexcept {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Measures the CPU time of the calling thread in laps.
class ThreadLaps {
 public:
  /// Returns the seconds since the last lap, or since this was made.
  double lap_s() noexcept {
    const double now_s = thread_time_s();
    return now_s - std::exchange(last_s_, now_s);
  }

 private:
  double last_s_ = thread_time_s();
};

}  // namespace swell::control
