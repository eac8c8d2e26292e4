// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <utility>

#include "control/messages.h"

namespace swell::controller {

/// Why and by when a companion leaves its job. Once it leaves, it never stays again. Times are
/// seconds on the controller's clock.
class Departure {
 public:
  /// The companion is to end by `by`. If it leaves already, its reason stays, and its deadline if
  /// that is earlier.
  void begin(double by, const std::string& why);
  /// Slurm preempts the companion and ends it at `at`, whatever was planned, for a pending job; 0:
  /// nobody knows which. If it leaves already, its reason stays: Slurm often takes what the
  /// controller has asked for, for the same job.
  void preempt(double at, control::JobId needed_by);
  /// Notes that the companion ended though nobody took it back.
  void lose() noexcept { has_begun_ = is_lost_ = true; }
  void explain(std::string why) { reason_ = std::move(why); }
  /// Sets when the companion is cancelled.
  void set_deadline(double deadline) noexcept { deadline_ = deadline; }

  bool has_begun() const noexcept { return has_begun_; }
  bool is_by_slurm() const noexcept { return is_by_slurm_; }
  /// Whether the controller had taken it back before Slurm preempted it.
  bool was_under_way() const noexcept { return was_under_way_; }
  bool is_lost() const noexcept { return is_lost_; }
  /// When the companion is cancelled. REQUIRES: has_begun().
  double deadline() const noexcept { return deadline_; }
  /// Why it leaves, for people.
  const std::string& reason() const noexcept { return reason_; }

 private:
  bool has_begun_ = false, is_by_slurm_ = false, was_under_way_ = false, is_lost_ = false;
  double deadline_ = 0;
  std::string reason_;
};

}  // namespace swell::controller
