// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/pacing.h"

#include <algorithm>

namespace swell::controller {

namespace {

using Clock = std::chrono::steady_clock;

/// Rounds are at least so far apart, however many events come.
constexpr auto kMinPause = std::chrono::milliseconds(100);
/// And so far that their own work takes at most this share of a core (each costs slurmctld about as
/// much again), as long as PollInterval allows: in a small cluster this changes nothing.
constexpr double kMaxShare = 0.01;

}  // namespace

Clock::duration rest_after(double own_work_s, double poll_interval_s) {
  const double rest_s = std::min(own_work_s / kMaxShare, poll_interval_s);
  return std::max(
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(rest_s)),
      Clock::duration(kMinPause));
}

}  // namespace swell::controller
