// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace swell::controller {

/// Limits of what a job is lent that do not come from its --elastic: those that its owner sets with
/// the swell command (OwnerRequests), and the effect of Slurm's limits for its user (UserLimits).
class JobLimits {
 public:
  JobLimits() = default;
  /// Restores what the owner said before a restart.
  JobLimits(bool is_paused, int max_gpus) : is_paused_(is_paused), max_gpus_(max_gpus) {}

  void pause(bool is_paused) noexcept { is_paused_ = is_paused; }
  void set_max_gpus(int max_gpus) noexcept { max_gpus_ = max_gpus; }
  /// Begins anew with the limits of its user.
  void lift_users() {
    held_back_.clear();
    companion_slots_ = std::numeric_limits<int>::max();
  }
  void hold_back(std::string why) { held_back_ = std::move(why); }
  /// Allows so many companions more, or fewer where that was said before.
  void allow(int companions) noexcept { companion_slots_ = std::min(companion_slots_, companions); }

  bool is_paused() const noexcept { return is_paused_; }
  /// GPUs in all, by its owner; 0: as --elastic says.
  int max_gpus() const noexcept { return max_gpus_; }
  /// Why it is lent no more for the limits of its user, for people; empty: it may be.
  const std::string& held_back() const noexcept { return held_back_; }
  /// Companions more that the limits of its user allow.
  int companion_slots() const noexcept { return companion_slots_; }

 private:
  bool is_paused_ = false;
  int max_gpus_ = 0;
  std::string held_back_;
  int companion_slots_ = std::numeric_limits<int>::max();
};

}  // namespace swell::controller
