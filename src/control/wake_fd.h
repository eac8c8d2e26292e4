// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>

namespace swell::control {

/// Wakes a thread that polls fd(). Thread-safe.
class WakeFd {
 public:
  WakeFd() noexcept : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~WakeFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  WakeFd(const WakeFd&) = delete;
  WakeFd& operator=(const WakeFd&) = delete;

  /// Returns -1 if the process has too many files open.
  int fd() const noexcept { return fd_; }
  void signal() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(fd_, &one, sizeof one);
  }
  void clear() noexcept {
    std::uint64_t count;
    [[maybe_unused]] const auto read = ::read(fd_, &count, sizeof count);
  }

 private:
  int fd_;
};

}  // namespace swell::control
