// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <deque>
#include <optional>

namespace swell::launcher {

/// Predicts from what a run has measured how long its next live switch takes: the start of the
/// programs, in which nearly all of it is spent, and the move of the state; and how long its
/// workers need to leave by a restart. Pure; seconds. Of each list the longest of the last three
/// counts, since a busy host is not quicker the next time.
class LivePace {
 public:
  /// An epoch's programs took so long to start and begin with the runtime, without a switch.
  void began(double seconds) { first_start_s_ = seconds; }
  /// The programs of a switch were ready after that time, or were not although they had it.
  /// to_running: all of its workers were training before, so that they may have kept their
  /// processes.
  void started(double seconds, bool to_running) {
    remember(to_running ? starts_of_running_s_ : starts_s_, seconds);
  }
  /// From then on the switch took that time until it was committed.
  void moved(double seconds) { remember(moves_s_, seconds); }
  /// All workers had left by themselves that long after they were asked to.
  void left(double seconds) { remember(leaves_s_, seconds); }

  /// Returns what the next switch to workers that are training is expected to take. None: nothing
  /// has been measured.
  std::optional<double> expected_s() const;
  /// Returns how much longer that is than leaving. None: one of them was not measured yet.
  std::optional<double> longer_than_leaving_s() const;

 private:
  static void remember(std::deque<double>& list, double seconds);

  std::optional<double> first_start_s_;
  std::deque<double> starts_s_, starts_of_running_s_, moves_s_, leaves_s_;
};

}  // namespace swell::launcher
