// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/trust.h"

#include <algorithm>
#include <fmt/format.h>

namespace swell::policy {

namespace {

/// Minimum gain that counts: less is not a promise if predicted, and not a benefit if measured.
constexpr double kMinGain = 0.05;
/// Seconds for which a job is barred the first time.
constexpr double kBarred_s = 600;
constexpr int kMaxDoublings = 6;

double bar_s(int times) { return kBarred_s * (1 << std::min(times, kMaxDoublings)); }

}  // namespace

void Trust::heard(const std::optional<Speedup>& speedup, double now, double max_shortfall) {
  if (!speedup) {
    kept_since_.reset();
    return;
  }
  const double promised = speedup->predicted - 1, gained = speedup->measured - 1;
  const bool brings_nothing = gained < kMinGain;
  if (promised < kMinGain || (!brings_nothing && gained >= (1 - max_shortfall) * promised)) {
    if (is_barred(now)) return;  // the report is about GPUs that are being returned
    is_barred_ = false;
    why_.clear();
    if (promised < kMinGain) kept_since_.reset();
    else if (!kept_since_) kept_since_ = now;
    return;
  }
  if (kept_since_ && times_ > 0 && now - *kept_since_ >= bar_s(times_ - 1)) times_ = 0;
  kept_since_.reset();
  std::string why = fmt::format("lent GPUs made it {:.2f} times as fast where {:.2f} was predicted",
                                speedup->measured, speedup->predicted);
  if (brings_nothing) why += ", a gain below 5 %";
  else
    why += fmt::format(", {:.0f} % of the gain; at least {:.0f} % is asked for (MaxShortfall)",
                       100 * gained / promised, 100 * (1 - max_shortfall));
  if (why_.empty() || (is_barred_ && now >= until_)) {
    is_barred_ = false;
    until_ = now + kTrial_s;
  }
  why_ = why;
}

void Trust::reclaimed(double now) {
  is_barred_ = true;
  until_ = now + bar_s(times_++);
}

}  // namespace swell::policy
