// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "control/messages.h"

namespace swell::controller {

/// A list of jobs that the controller replaces and slurmctld's threads read. Thread-safe.
class SharedJobs {
 public:
  void set(std::vector<control::JobId> jobs) {
    Lock lock(mutex_);
    jobs_ = std::move(jobs);
  }
  std::vector<control::JobId> get() const {
    Lock lock(mutex_);
    return jobs_;
  }
  bool contains(control::JobId job) const {
    Lock lock(mutex_);
    return std::find(jobs_.begin(), jobs_.end(), job) != jobs_.end();
  }

 private:
  mutable Mutex mutex_;
  std::vector<control::JobId> jobs_ SWELL_GUARDED_BY(mutex_);
};

}  // namespace swell::controller
