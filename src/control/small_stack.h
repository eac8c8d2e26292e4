// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <mutex>
#include <pthread.h>

namespace swell::control {

/// Other than the 1 MB of the threads that Slurm starts, so that neither takes a kept stack of the
/// other's.
inline constexpr std::size_t kStackBytes = std::size_t{2} << 20;

/// Threads that are started while this stands have stacks of kStackBytes, where the process's
/// default is larger. A slurmctld that controls for the second time, as a backup, joins the
/// scheduling thread of the first time again as it ends (22.05, main_sched_fini()): that reads the
/// thread's old stack, which libc keeps as long as it keeps no more than 40 MB of them. A few
/// stacks of 8 MB had it unmapped, and slurmctld crashed.
class SmallStack {
 public:
  SmallStack() {
    pthread_attr_t small;
    if (pthread_getattr_default_np(&before_) != 0) return;
    is_set_ = pthread_getattr_default_np(&small) == 0;
    std::size_t bytes = 0;
    pthread_attr_getstacksize(&before_, &bytes);
    if (is_set_ && bytes > kStackBytes && pthread_attr_setstacksize(&small, kStackBytes) == 0)
      pthread_setattr_default_np(&small);
    if (is_set_) pthread_attr_destroy(&small);
  }
  SmallStack(const SmallStack&) = delete;
  SmallStack& operator=(const SmallStack&) = delete;
  ~SmallStack() {
    if (!is_set_) return;
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  static inline std::mutex mutex_;  // one at a time: each restores what was before it
  std::lock_guard<std::mutex> lock_{mutex_};
  pthread_attr_t before_{};
  bool is_set_ = false;
};

}  // namespace swell::control
