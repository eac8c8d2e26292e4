// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>

namespace swell::policy {

/// Predicted and measured speed-up by lent GPUs, each relative to the job's own GPUs alone.
struct Speedup {
  double predicted = 1, measured = 1;
};

/// Decides whether a job is lent GPUs at all. A job that gains nothing by them, or falls short of
/// its profile's promise by more than a set share, is lent no more, and after a while gives back
/// what it has. (From the first report on, measured times correct its predictions:
/// lending/belief.h.) Pure; times are seconds on the controller's clock.
class Trust {
 public:
  /// Default share of a promised gain that may be missing, 0 to 1; 1: all of it, as long as lent
  /// GPUs bring something.
  static constexpr double kMaxShortfall = 0.95;
  /// Time for which a job that falls short keeps what it is lent, since its next report may be
  /// better. It is lent no more meanwhile.
  static constexpr double kTrial_s = 20;

  /// Records the speed-up in the job's last report; nothing: it has no lent GPUs, or was never
  /// measured without them. Programs report when their times are stable, and again when these have
  /// become stable at other values; a report holds until the next. `max_shortfall`: as
  /// kMaxShortfall.
  void heard(const std::optional<Speedup>& speedup, double now,
             double max_shortfall = kMaxShortfall);
  /// Returns whether the job may be lent more.
  bool may_grow(double now) const noexcept { return why_.empty() || (is_barred_ && now >= until_); }
  /// Returns whether the job has given back what it was lent, and is not lent anything yet.
  bool is_barred(double now) const noexcept { return is_barred_ && now < until_; }
  /// Returns whether the job has fallen short long enough for its lent GPUs to be reclaimed.
  bool is_over(double now) const noexcept { return !why_.empty() && !is_barred_ && now >= until_; }
  /// Records that its lent GPUs are reclaimed, and bars the job from growing: each time for twice
  /// as long as the time before. The bars are forgotten once the job has kept its promise with lent
  /// GPUs for as long as its last bar, so that one good report between bad ones, which a program
  /// can easily forge, does not shorten them.
  void reclaimed(double now);
  /// Returns when may_grow() or is_over() changes if no further report comes.
  double until() const noexcept { return until_; }
  /// Returns the problem for the job's owner, as of the last report; empty: none. Once the job
  /// may_grow() again, a later report may clear it.
  const std::string& why() const noexcept { return why_; }

 private:
  std::string why_;
  bool is_barred_ = false;
  double until_ = 0;
  int times_ = 0;
  std::optional<double> kept_since_;  ///< since then all reports show that the promise is kept
};

}  // namespace swell::policy
