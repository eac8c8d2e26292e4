// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <deque>
#include <optional>

namespace swell::launcher {

/// Predicts from what a run has measured how long its next live switch takes: the start of the
/// programs, in which nearly all of it is spent, and the move of the state. Pure; seconds.
class LivePace {
 public:
  /// An epoch's programs took so long to start and begin with the runtime, without a switch.
  void began(double seconds) { first_start_s_ = seconds; }
  /// The programs of a switch were ready after that time, or were not although they had it.
  void started(double seconds) { remember(starts_s_, seconds); }
  /// From then on the switch took that time until it was committed.
  void moved(double seconds) { remember(moves_s_, seconds); }

  /// Returns what the next switch is expected to take: the longest of the last three, since a busy
  /// host is not quicker the next time. None: nothing has been measured.
  std::optional<double> expected_s() const;

 private:
  static void remember(std::deque<double>& list, double seconds);

  std::optional<double> first_start_s_;
  std::deque<double> starts_s_, moves_s_;
};

}  // namespace swell::launcher
