// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <deque>

#include "core/perf/coefficients.h"

namespace swell::perf {

/// Returns the largest relative change of any coefficient from `a` to `b`; 0 for equal sets. A
/// coefficient that is 0 in only one set counts as a change of 1. REQUIRES: both sets are for one
/// cluster.
double largest_change(const Coefficients& a, const Coefficients& b);

/// Decides when coefficients can be trusted: as soon as no two of the last `window` sets differ by
/// more than `tolerance` (Suika 3.1: at most 2 %). One thread at a time.
class Stability {
 public:
  explicit Stability(std::size_t window = 5, double tolerance = 0.02)
      : window_(window < 2 ? 2 : window), tolerance_(tolerance) {}
  /// Adds a newly solved set; returns whether the window is now full and stable.
  bool add(Coefficients coefficients);
  bool stable() const;
  /// Forgets all sets, since the job now runs another plan.
  void reset() { recent_.clear(); }

 private:
  std::size_t window_;
  double tolerance_;
  std::deque<Coefficients> recent_;
};

}  // namespace swell::perf
