// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <optional>

namespace swell {

/// CPU time that the peers of a listener may take: a share of a core on average, so that the cost
/// of a flood depends on this share and not on the speed of the senders. Unused time accumulates up
/// to a limit, since honest peers may all come at once. Times are in seconds.
class CpuShare {
 public:
  /// `share`: of a core; 0: no limit. `most_s`: limit of accumulated CPU time, and its first value.
  explicit CpuShare(double share, double most_s) noexcept
      : share_(share), most_s_(most_s), left_s_(most_s) {}

  /// Counts used CPU time. A negative `cpu_s` takes back counted time that was not used.
  void use(double cpu_s, double now_s) noexcept {
    refill(now_s);
    left_s_ = std::min(most_s_, left_s_ - cpu_s);
  }

  /// Returns the seconds until work may go on; 0: at once. After a shortage, work goes on only when
  /// there is time for several pieces, so that a flood does not wake the thread for each piece.
  double wait_s(double now_s) noexcept {
    if (share_ <= 0) return 0;
    refill(now_s);
    const double enough_s = std::min(kEnough_s, most_s_);
    if (left_s_ <= 0) is_used_up_ = true;
    if (left_s_ >= enough_s - 1e-9) is_used_up_ = false;
    return is_used_up_ ? (enough_s - left_s_) / share_ : 0;
  }

  /// Returns whether all of the time is unused, so that this object may be dropped.
  bool is_whole(double now_s) const noexcept {
    return share_ <= 0 || left_s_ + share_ * (now_s - last_s_.value_or(now_s)) >= most_s_;
  }

 private:
  static constexpr double kEnough_s = 0.002;

  void refill(double now_s) noexcept {
    if (last_s_ && now_s > *last_s_)
      left_s_ = std::min(most_s_, left_s_ + share_ * (now_s - *last_s_));
    last_s_ = now_s;
  }

  const double share_, most_s_;
  double left_s_;
  std::optional<double> last_s_;
  bool is_used_up_ = false;
};

}  // namespace swell
