// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <deque>
#include <optional>
#include <utility>

namespace swell::launcher {

/// Measures how long a run's programs take to start, and predicts from what was measured how long
/// its next live switch takes: the start of the programs, in which nearly all of it is spent, and
/// the move of the state; and how long its workers need to leave by a restart. Pure; seconds. The
/// longest of the last three of each list counts: a busy host is not quicker the next time.
class LivePace {
 public:
  /// All programs start anew at `now`.
  void starts(double now) {
    since_ = now;
    is_ready_ = false;
  }
  /// All of them are as ready as a growth needs: they are about to make their first step.
  void ready(double now) {
    if (since_ && !std::exchange(is_ready_, true)) start_s_ = now - *since_;
  }
  /// They have made a step. The first one counts, where steps are known.
  void stepped(double now) {
    if (since_) start_s_ = now - *std::exchange(since_, std::nullopt);
  }
  /// Their steps say nothing of a start any more: a switch begins.
  void switches() { since_.reset(); }
  /// Returns the time from the last start to the first step; 0: not known yet.
  double start_s() const noexcept { return start_s_; }

  /// Takes the time that a generation's programs needed to start and begin with the runtime,
  /// without a switch. stays: they may keep their processes in a switch to workers that are
  /// training.
  void began(double seconds, bool stays = true) {
    first_start_s_ = seconds;
    stays_ = stays;
  }
  /// The programs of a switch were ready after that time, or were not although they had it.
  /// to_running: all of its workers were training before, so that they may have kept their
  /// processes.
  void started(double seconds, bool to_running) {
    remember(to_running ? starts_of_running_s_ : starts_s_, seconds);
    leaves_since_ = 0;
  }
  /// From then on the switch took that time until it was committed.
  void moved(double seconds) { remember(moves_s_, seconds); }
  /// All workers had left by themselves that long after they were asked to. After some leaves
  /// without a switch, its times are forgotten: one that was slow once must not be the last.
  void left(double seconds);

  /// Returns what the next switch to workers that are training is expected to take. None: none was
  /// measured, and either no start was, or the programs keep their processes: how long new ones
  /// took to start does not count then.
  std::optional<double> expected_s() const;
  /// Returns how much longer that is than leaving. None: one of them is not known yet. Programs
  /// that keep no process start anew, as long as they did before; those that say when they have
  /// been asked to leave (`listen`) are taken to need `kLeave_s` until a leave was measured.
  std::optional<double> longer_than_leaving_s(bool listen) const;
  static constexpr double kLeave_s = 3;

 private:
  static void remember(std::deque<double>& list, double seconds);

  std::optional<double> since_;
  bool is_ready_ = false;
  double start_s_ = 0;
  int leaves_since_ = 0;  ///< the last switch
  bool stays_ = true;
  std::optional<double> first_start_s_;
  std::deque<double> starts_s_, starts_of_running_s_, moves_s_, leaves_s_;
};

}  // namespace swell::launcher
