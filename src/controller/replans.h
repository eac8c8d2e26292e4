// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <vector>

#include "controller/companion_set.h"

namespace swell::controller {

/// Whether a job is told to run another plan on the GPUs that it has. A plan that its owner asked
/// for stands until these change; one that was decided is not followed by another at once, and
/// later each time: the program may not be able to run them. Pure; times are seconds on the
/// controller's clock.
class Replans {
 public:
  Replans() = default;
  /// Restores companions() and is_owners() of before a restart.
  explicit Replans(std::vector<JobId> owners) : companions_(std::move(owners)), is_owners_(true) {}

  void owner_asked(const CompanionSet& companions) {
    companions_ = ids(companions);
    is_owners_ = true;
  }
  /// Another may follow after `wait_s`, twice as long after each further one on the same GPUs.
  void decided(const CompanionSet& companions, double now, double wait_s) {
    std::vector<JobId> held = ids(companions);
    if (is_owners_ || held != companions_) times_ = 0;
    companions_ = std::move(held);
    is_owners_ = false;
    after_ = now + wait_s * (1 << times_);
    times_ = std::min(times_ + 1, kMaxDoublings);
  }
  bool may_follow(const CompanionSet& companions, double now) const {
    return ids(companions) != companions_ || (!is_owners_ && now >= after_);
  }

  /// Returns whether the job's owner ordered the last plan. companions(): those that it was for.
  bool is_owners() const noexcept { return is_owners_; }
  const std::vector<JobId>& companions() const noexcept { return companions_; }

 private:
  static constexpr int kMaxDoublings = 10;

  static std::vector<JobId> ids(const CompanionSet& companions) {
    std::vector<JobId> ids;
    for (const Companion& companion : companions) ids.push_back(companion.id);
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  std::vector<JobId> companions_;
  bool is_owners_ = false;
  double after_ = 0;
  int times_ = 0;
};

}  // namespace swell::controller
