// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>

namespace swell::policy {

/// What lent GPUs were predicted to bring, and what they did; each over the job's own GPUs alone.
struct Speedup {
  double predicted = 1, measured = 1;
};

/// Whether a job is lent GPUs at all: one that gains nothing by them, though its profile promised
/// so, is lent no more, and after a while gives back what it has. Pure; times are seconds on
/// the controller's clock.
class Trust {
 public:
  /// What the job's last report shows; nothing: it is lent nothing, or was never seen without.
  void heard(const std::optional<Speedup>& speedup, double now);
  /// Whether it may be lent more.
  bool may_grow(double now) const noexcept { return why_.empty() || (is_barred_ && now >= until_); }
  /// Whether it is time to take back what it is lent: it has fallen short for a while.
  bool is_over(double now) const noexcept { return !why_.empty() && !is_barred_ && now >= until_; }
  /// It is taken back: nothing is lent for a time, twice as long after each further time.
  void reclaimed(double now);
  /// When may_grow() or is_over() changes, where nothing more is heard.
  double until() const noexcept { return until_; }
  /// What is wrong, for the job's owner; empty: nothing.
  const std::string& why() const noexcept { return why_; }

 private:
  std::string why_;
  bool is_barred_ = false;
  double until_ = 0;
  int times_ = 0;
};

}  // namespace swell::policy
