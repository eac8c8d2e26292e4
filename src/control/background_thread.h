// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <exception>
#include <memory>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/mutex.h"
#include "control/small_stack.h"

namespace swell::control {

/// Pause before a failed loop is run again for the first time; each further one is twice as long.
inline constexpr std::chrono::milliseconds kFirstLoopPause{1000};
/// Maximum pause. After a loop that ran for longer than this, the first pause applies again.
inline constexpr std::chrono::seconds kMaxLoopPause{60};

/// A plugin's own thread inside slurmctld. The thread owns a reference to this object, since stop()
/// leaves a thread behind that waits for an RPC. The thread takes no signals, and runs at a lower
/// priority than slurmctld's own threads. Make it with std::make_shared.
class BackgroundThread : public std::enable_shared_from_this<BackgroundThread> {
 public:
  using Clock = std::chrono::steady_clock;
  explicit BackgroundThread(Clock::duration first_pause = kFirstLoopPause)
      : first_pause_(first_pause) {}
  virtual ~BackgroundThread() = default;

  /// Throws std::system_error if no thread can be started.
  void start() {
    const SmallStack small;
    std::thread([self = shared_from_this()] { self->run(); }).detach();
  }

  /// Tells the thread to stop. Returns whether it has ended within `patience`.
  bool stop(std::chrono::milliseconds patience) {
    Lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    return changed_.wait_for(lock, patience, [&]() SWELL_REQUIRES(mutex_) { return ended_; });
  }

  /// Ends the wait() that is under way, or the next one.
  void wake() {
    Lock lock(mutex_);
    woken_ = true;
    changed_.notify_all();
  }

 protected:
  /// Runs in the thread until it is time to stop.
  virtual void loop() = 0;
  /// Reports that loop() has thrown, for example because no thread could be started. loop() is
  /// called again after a pause.
  virtual void failed(const char* reason) noexcept = 0;

  /// Waits for `time`. Returns whether it is time to stop.
  bool pause(Clock::duration time) {
    Lock lock(mutex_);
    return changed_.wait_for(lock, time, [&]() SWELL_REQUIRES(mutex_) { return stopping_; });
  }

  /// Waits until `until` or a wake(), then for `gather` more, since events come in bursts. Returns
  /// whether it is time to stop.
  bool wait(Clock::time_point until, Clock::duration gather) {
    Lock lock(mutex_);
    changed_.wait_until(lock, until, [&]() SWELL_REQUIRES(mutex_) { return stopping_ || woken_; });
    if (stopping_) return true;
    if (woken_) changed_.wait_for(lock, gather, [&]() SWELL_REQUIRES(mutex_) { return stopping_; });
    woken_ = false;
    return stopping_;
  }

 private:
  void run() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    // On Linux this sets the priority of this thread only.
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 10);
    Clock::duration rest = first_pause_;
    do {
      const Clock::time_point begin = Clock::now();
      try {
        loop();
        break;
      } catch (const std::exception& problem) { failed(problem.what()); } catch (...) {
        failed("unknown exception");
      }
      if (Clock::now() - begin > kMaxLoopPause) rest = first_pause_;
    } while (!pause(std::exchange(rest, std::min<Clock::duration>(2 * rest, kMaxLoopPause))));
    Lock lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  const Clock::duration first_pause_;
  Mutex mutex_;
  Condition changed_;
  bool stopping_ SWELL_GUARDED_BY(mutex_) = false;
  bool woken_ SWELL_GUARDED_BY(mutex_) = false;
  bool ended_ SWELL_GUARDED_BY(mutex_) = false;
};

}  // namespace swell::control
