// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

namespace swell::control {

/// Passes lines to a log, at most 20 at once and one a second on average, so that a hostile peer
/// cannot fill a disk. Says how many lines it left out. Not thread-safe.
class LogLimit {
 public:
  using Clock = std::chrono::steady_clock;
  explicit LogLimit(std::function<void(const std::string&)> log) : log_(std::move(log)) {}

  void operator()(const std::string& line, Clock::time_point now = Clock::now()) {
    if (!log_) return;
    allowance_ =
        std::min(kMaxAllowance, allowance_ + std::chrono::duration<double>(now - last_).count());
    last_ = now;
    if (allowance_ < 1) {
      ++left_out_;
      return;
    }
    allowance_ -= 1;
    const int left_out = std::exchange(left_out_, 0);
    log_(left_out == 0
             ? line
             : line + " (" + std::to_string(left_out) + " lines before this one left out)");
  }

 private:
  static constexpr double kMaxAllowance = 20;
  std::function<void(const std::string&)> log_;
  Clock::time_point last_ = Clock::now();
  double allowance_ = kMaxAllowance;
  int left_out_ = 0;
};

}  // namespace swell::control
