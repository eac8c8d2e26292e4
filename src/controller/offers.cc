// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/offers.h"

namespace swell::controller {

namespace {

/// The longest wait after growths that failed, in growth intervals.
constexpr int kMaxBackoff = 32;

}  // namespace

void Offers::fail(double now, double interval_s) noexcept {
  is_open_ = false;
  ++failures_;
  const int backoff = std::min(1 << std::min(failures_ - 1, 10), kMaxBackoff);
  times_.grows_after = now + std::max(interval_s, 1.0) * backoff;
}

bool Offers::take_passed(double now) noexcept {
  for (double* until : {&times_.grows_after, &times_.stays_until})
    if (*until > 0 && now >= *until) {
      *until = 0;
      return true;
    }
  return false;
}

}  // namespace swell::controller
