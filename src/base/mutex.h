// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

/// \file
/// A mutex whose use clang checks (-Wthread-safety; tests/contrib/locks_test.sh): annotations mark
/// the members that it guards and the functions that need it. Other compilers ignore them.

#if defined(__clang__)
#define SWELL_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define SWELL_THREAD_SAFETY(attribute)
#endif

/// This member is read and written only while the mutex is held.
#define SWELL_GUARDED_BY(mutex) SWELL_THREAD_SAFETY(guarded_by(mutex))
/// The value behind this pointer is read and written only while the mutex is held.
#define SWELL_PT_GUARDED_BY(mutex) SWELL_THREAD_SAFETY(pt_guarded_by(mutex))
/// Callers hold these mutexes.
#define SWELL_REQUIRES(...) SWELL_THREAD_SAFETY(requires_capability(__VA_ARGS__))
/// Callers do not hold these mutexes.
#define SWELL_EXCLUDES(...) SWELL_THREAD_SAFETY(locks_excluded(__VA_ARGS__))
/// Clang cannot follow the locks of this function; a comment says what holds.
#define SWELL_UNCHECKED SWELL_THREAD_SAFETY(no_thread_safety_analysis)

namespace swell {

class SWELL_THREAD_SAFETY(capability("mutex")) Mutex {
 public:
  void lock() SWELL_THREAD_SAFETY(acquire_capability()) { mutex_.lock(); }
  void unlock() SWELL_THREAD_SAFETY(release_capability()) { mutex_.unlock(); }

 private:
  friend class Lock;
  std::mutex mutex_;
};

/// Holds a mutex while it exists; may release the mutex and lock it again meanwhile.
class SWELL_THREAD_SAFETY(scoped_lockable) Lock {
 public:
  explicit Lock(Mutex& mutex) SWELL_THREAD_SAFETY(acquire_capability(mutex))
      : lock_(mutex.mutex_) {}
  ~Lock() SWELL_THREAD_SAFETY(release_capability()) {}
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  void lock() SWELL_THREAD_SAFETY(acquire_capability()) { lock_.lock(); }
  void unlock() SWELL_THREAD_SAFETY(release_capability()) { lock_.unlock(); }

 private:
  friend class Condition;
  std::unique_lock<std::mutex> lock_;
};

/// std::condition_variable for a Lock. A predicate is called while the mutex is held: a lambda that
/// reads guarded members is marked SWELL_REQUIRES(mutex).
class Condition {
 public:
  void notify_one() noexcept { changed_.notify_one(); }
  void notify_all() noexcept { changed_.notify_all(); }
  void wait(Lock& lock) { changed_.wait(lock.lock_); }
  template <typename Predicate>
  void wait(Lock& lock, Predicate predicate) SWELL_UNCHECKED {
    changed_.wait(lock.lock_, predicate);
  }
  template <typename Rep, typename Period>
  std::cv_status wait_for(Lock& lock, std::chrono::duration<Rep, Period> time) {
    return changed_.wait_for(lock.lock_, time);
  }
  template <typename Rep, typename Period, typename Predicate>
  bool wait_for(Lock& lock, std::chrono::duration<Rep, Period> time,
                Predicate predicate) SWELL_UNCHECKED {
    return changed_.wait_for(lock.lock_, time, predicate);
  }
  template <typename Clock, typename Duration>
  std::cv_status wait_until(Lock& lock, std::chrono::time_point<Clock, Duration> until) {
    return changed_.wait_until(lock.lock_, until);
  }
  template <typename Clock, typename Duration, typename Predicate>
  bool wait_until(Lock& lock, std::chrono::time_point<Clock, Duration> until,
                  Predicate predicate) SWELL_UNCHECKED {
    return changed_.wait_until(lock.lock_, until, predicate);
  }

 private:
  std::condition_variable changed_;
};

}  // namespace swell
