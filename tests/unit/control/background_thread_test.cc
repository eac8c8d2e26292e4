// SPDX-License-Identifier: GPL-2.0-or-later
#include <atomic>
#include <criterion/criterion.h>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "control/background_thread.h"

using namespace std::chrono_literals;

namespace {

/// Its loop fails so many times, and then runs until it is stopped.
class Failing final : public swell::control::BackgroundThread {
 public:
  Failing(Clock::duration first_pause, int failures)
      : BackgroundThread(first_pause), left_(failures) {}

  bool runs_within(std::chrono::seconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return runs_; });
  }
  std::vector<std::string> reasons() {
    std::lock_guard lock(mutex_);
    return reasons_;
  }
  std::vector<Clock::time_point> begun() {
    std::lock_guard lock(mutex_);
    return begun_;
  }

 private:
  void loop() override {
    {
      std::lock_guard lock(mutex_);
      begun_.push_back(Clock::now());
      changed_.notify_all();
      if (left_-- > 0) throw std::runtime_error("no thread can be started");
      runs_ = true;
    }
    while (!pause(1h)) {}
  }
  void failed(const char* reason) noexcept override {
    std::lock_guard lock(mutex_);
    reasons_.emplace_back(reason);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int left_;
  bool runs_ = false;
  std::vector<std::string> reasons_;
  std::vector<Clock::time_point> begun_;
};

}  // namespace

Test(background_thread, a_loop_that_fails_is_begun_again_in_growing_intervals, .timeout = 60) {
  const auto thread = std::make_shared<Failing>(20ms, 3);
  thread->start();
  cr_assert(thread->runs_within(30s));
  cr_assert_eq(thread->reasons().size(), 3u);
  cr_assert_eq(thread->reasons().front(), "no thread can be started");
  const auto begun = thread->begun();
  cr_assert_eq(begun.size(), 4u);
  cr_assert_geq((begun[1] - begun[0]).count(), std::chrono::nanoseconds(20ms).count());
  cr_assert_geq((begun[2] - begun[1]).count(), std::chrono::nanoseconds(40ms).count());
  cr_assert_geq((begun[3] - begun[2]).count(), std::chrono::nanoseconds(80ms).count());
  cr_assert(thread->stop(30s));
}

Test(background_thread, it_is_stopped_while_it_waits_to_begin_again, .timeout = 60) {
  const auto thread = std::make_shared<Failing>(1h, 1);
  thread->start();
  cr_assert(thread->stop(30s));
  cr_assert_leq(thread->begun().size(), 1u);
}
