// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>

namespace swell::policy {

/// Predicted and measured speed-up by lent GPUs; each over the job's own GPUs alone.
struct Speedup {
  double predicted = 1, measured = 1;
};

/// Whether a job is lent GPUs at all: one that gains nothing by them, or less by a set share than
/// its profile promised, is lent no more, and after a while gives back what it has. Its
/// predictions are corrected by measured times from the first report on (lending/belief.h).
/// Pure; times are seconds on the controller's clock.
class Trust {
 public:
  /// Share of a promised gain that may be missing, of 0 to 1, where nobody sets another; 1: all of
  /// it, as long as lent GPUs bring something.
  static constexpr double kMaxShortfall = 0.95;
  /// A job that falls short keeps what it is lent for so long: its next report may be better. It is
  /// lent no more meanwhile.
  static constexpr double kTrial_s = 20;

  /// Takes the speed-up by the job's last report; nothing: it has no lent GPUs, or was never seen
  /// without. Programs report once their times are stable, and again once these are stable at other
  /// values, so that the last report holds until the next. `max_shortfall`: as kMaxShortfall.
  void heard(const std::optional<Speedup>& speedup, double now,
             double max_shortfall = kMaxShortfall);
  /// Whether it may be lent more.
  bool may_grow(double now) const noexcept { return why_.empty() || (is_barred_ && now >= until_); }
  /// Whether it has given back what it was lent, and is lent nothing yet.
  bool is_barred(double now) const noexcept { return is_barred_ && now < until_; }
  /// Whether it is time to take back what it is lent: it has fallen short for a while.
  bool is_over(double now) const noexcept { return !why_.empty() && !is_barred_ && now >= until_; }
  /// It is taken back: nothing is lent for a time, twice as long after each further time. That is
  /// forgotten once the job has kept a promise over lent GPUs for as long as it was barred last:
  /// one good report between two bad ones, which costs a program nothing, buys no shorter time.
  void reclaimed(double now);
  /// When may_grow() or is_over() changes, where nothing more is heard.
  double until() const noexcept { return until_; }
  /// Returns what is wrong, for the job's owner; empty: nothing. It dates from the last report:
  /// once it may_grow() again, a later report may clear it.
  const std::string& why() const noexcept { return why_; }

 private:
  std::string why_;
  bool is_barred_ = false;
  double until_ = 0;
  int times_ = 0;
  std::optional<double> kept_since_;  ///< since when all reports show a promise that is kept
};

}  // namespace swell::policy
