// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <pthread.h>

#include "base/mutex.h"

namespace swell::control {

/// Differs from the 1 MB of Slurm's threads, so that neither side reuses cached stacks of the
/// other.
inline constexpr std::size_t kStackBytes = std::size_t{2} << 20;

/// While an object exists, new threads get stacks of kStackBytes if the process's default is
/// larger. Reason: a backup slurmctld that took over twice joins, when it ends, the scheduling
/// thread of its first takeover once more (22.05, main_sched_fini()). That reads the stack of the
/// old thread, which libc caches while its cache is below 40 MB. A few stacks of 8 MB fill the
/// cache: then the old stack is unmapped, and slurmctld crashes.
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
  static inline Mutex mutex_;  // one object at a time: each restores the default that it found
  Lock lock_{mutex_};
  pthread_attr_t before_{};
  bool is_set_ = false;
};

}  // namespace swell::control
