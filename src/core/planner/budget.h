// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>

namespace swell::planner {

/// Time limit of a solver or a search, which then returns the best result so far. The core has no
/// clock, so the caller passes a function that returns whether time is up. It may be called on any
/// thread, and must never return false after true.
struct Budget {
  std::function<bool()> expired = [] { return false; };
};

}  // namespace swell::planner
