// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <exception>
#include <list>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "core/executor.h"

namespace swell {

/// Threads that help the caller of run(), which works as well: with one helper, two pieces are done
/// at a time. The threads sleep while there is no work.
class Helpers final : public Executor {
 public:
  /// Starts a thread that runs `body`. The host supplies it, to start threads in its own way.
  using StartThread = std::function<std::thread(std::function<void()> body)>;
  /// Throws what `start` throws if no more threads can be started.
  Helpers(int threads, const StartThread& start);
  /// REQUIRES: no run() is under way.
  ~Helpers() override;
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

  void run(std::size_t count, const std::function<void(std::size_t)>& body) override;

 private:
  struct Work {
    std::size_t next, count;
    const std::function<void(std::size_t)>* body;
    int at_work = 0;  ///< threads that run a piece of it now
    std::exception_ptr problem;
  };
  void stop() noexcept;
  void help();
  void do_next(Work& work) SWELL_REQUIRES(mutex_);

  Mutex mutex_;
  Condition more_, done_;
  std::list<Work*> waiting_ SWELL_GUARDED_BY(mutex_);  ///< work with pieces not begun yet
  bool stops_ SWELL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace swell
