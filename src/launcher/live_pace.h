// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <deque>
#include <optional>
#include <utility>

namespace swell::launcher {

/// Measures how long a run's programs take to start, its live switches take to move the state, and
/// its workers take to leave for a restart. Predicts from these how long the next live switch
/// takes; nearly all of that is the start of the programs. Pure; seconds. The longest of the last
/// three measurements of each kind counts, since a busy host is not quicker the next time.
class LivePace {
 public:
  /// Notes that all programs are started again at `now`.
  void starts(double now) {
    since_ = now;
    is_ready_ = false;
  }
  /// Notes that all programs are ready for a growth: they are about to make their first step.
  void ready(double now) {
    if (since_ && !std::exchange(is_ready_, true)) start_s_ = now - *since_;
  }
  /// Notes a step of the programs. If steps are known, a start ends with the first one.
  void stepped(double now) {
    if (since_) start_s_ = now - *std::exchange(since_, std::nullopt);
  }
  /// Notes that a switch begins: the next steps do not end a start.
  void switches() { since_.reset(); }
  /// Returns the time from the last start to the first step; 0: not known yet.
  double start_s() const noexcept { return start_s_; }

  /// Notes the time that a generation's programs needed to start and to connect to the runtime,
  /// without a switch. `stays`: they may keep their processes in a switch to workers that already
  /// train.
  void began(double seconds, bool stays = true) {
    first_start_s_ = seconds;
    stays_ = stays;
  }
  /// Notes that the programs of a switch were ready after `seconds`, or were not ready by then.
  /// `to_running`: all workers of the switch trained before it, so that they may have kept their
  /// processes.
  void started(double seconds, bool to_running) {
    remember(to_running ? starts_of_running_s_ : starts_s_, seconds);
    leaves_since_ = 0;
  }
  /// Notes the time of a switch from when its programs were ready to its commit.
  void moved(double seconds) { remember(moves_s_, seconds); }
  /// Notes the time in which all workers left after they had been asked to. Forgets the times of
  /// switches after several leaves without a switch: otherwise one slow switch would prevent all
  /// later ones.
  void left(double seconds);

  /// Returns the expected time of the next switch to workers that already train. Returns nullopt if
  /// no switch was measured, unless a start was measured and the programs do not keep their
  /// processes.
  std::optional<double> expected_s() const;
  /// Returns by how much expected_s() exceeds the time to leave; nullopt: one of them is not known
  /// yet. Programs that do not keep their processes are assumed to start as slowly as before. Those
  /// that report when they have been asked to leave (`listen`) are assumed to need `kLeave_s` until
  /// a leave was measured.
  std::optional<double> longer_than_leaving_s(bool listen) const;
  static constexpr double kLeave_s = 3;

 private:
  static void remember(std::deque<double>& list, double seconds);

  std::optional<double> since_;
  bool is_ready_ = false;
  double start_s_ = 0;
  int leaves_since_ = 0;  ///< leaves since the last switch
  bool stays_ = true;
  std::optional<double> first_start_s_;
  std::deque<double> starts_s_, starts_of_running_s_, moves_s_, leaves_s_;
};

}  // namespace swell::launcher
