// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/trust.h"

#include <algorithm>
#include <fmt/format.h>

namespace swell::policy {

namespace {

/// A gain below this is none: where it is predicted, no promise; where it is measured, lent GPUs
/// bring nothing. A job that gains more keeps them, though more was promised: nobody else loses.
constexpr double kMinGain = 0.05;
/// A job that falls short keeps what it is lent for so long: its next report may be better.
constexpr double kTrial_s = 20;
/// After that it is lent nothing for so long.
constexpr double kBarred_s = 600;
constexpr int kMaxDoublings = 6;

}  // namespace

void Trust::heard(const std::optional<Speedup>& speedup, double now) {
  if (!speedup) return;
  const double promised = speedup->predicted - 1;
  if (promised < kMinGain || speedup->measured - 1 >= kMinGain) {
    if (is_barred_) return;
    why_.clear();
    times_ = 0;
    return;
  }
  const std::string why =
      fmt::format("lent GPUs made it {:.2f} times as fast where {:.2f} was predicted",
                  speedup->measured, speedup->predicted);
  if (why_.empty() || (is_barred_ && now >= until_)) {
    is_barred_ = false;
    until_ = now + kTrial_s;
  }
  why_ = why;
}

void Trust::reclaimed(double now) {
  is_barred_ = true;
  until_ = now + kBarred_s * (1 << std::min(times_++, kMaxDoublings));
}

}  // namespace swell::policy
