// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <optional>

namespace swell::controller {

/// Progress of a training, by the steps that its program reports. Pure; times are seconds of one
/// clock. A program may report anything. It is not believed if it moves its end again and again,
/// continues after its end, or makes steps far more slowly than its profiles said at the time.
/// Steps that a restart from a checkpoint loses count against its pace, for at most 2 kPace_s.
class StepsLeft {
 public:
  /// Notes a report: the program has made `made` of `total` steps (0: not reported). `step_s`:
  /// seconds of a step since the last report, by its profile; 0: it has reported no profile.
  void heard(double now, std::int64_t made, std::int64_t total, double step_s);

  /// Returns the steps until the end at `now`, for a program whose steps now take `step_s` by its
  /// profile. Returns nullopt if they are not known or not believed.
  std::optional<double> left(double now, double step_s) const;

  std::int64_t made() const noexcept { return made_; }
  /// Steps at the training's end; 0: not known.
  std::int64_t total() const noexcept { return total_; }

  /// Minimum time over which steps are counted before their pace is compared with a profile.
  static constexpr double kPace_s = 600;
  /// A training is assumed to continue for this time, or for the time of two steps, after the last
  /// step that it reported. From then on its remaining time stays the same until it reports a step.
  static constexpr double kSilent_s = 60;
  /// A training whose end moved this many times is not believed.
  static constexpr int kMostMoves = 3;

 private:
  struct Point {
    double at = 0;
    double done = 0, promised = 0;
  };

  std::int64_t made_ = 0, total_ = 0;
  double heard_at_ = 0;
  double made_at_ = 0;                   ///< when `made_` changed last
  std::int64_t said_ = 0;                ///< last reported number of steps that is not 0
  double since_said_ = 0;                ///< steps that profiles promised since `said_` changed
  double done_ = 0, promised_ = 0;       ///< steps made, and steps that its profiles promised
  int moves_ = 0;                        ///< how often `total_` has changed
  std::optional<double> ended_;          ///< when all steps were first said to be made
  std::optional<Point> before_, since_;  ///< starts of the last window of kPace_s, and of this one
};

}  // namespace swell::controller
