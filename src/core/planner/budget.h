// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <functional>

namespace swell::planner {

/// Time limit of a solver or a search, which then returns the best that it has found. The core has
/// no clock: the caller's function tells when time is up, on any thread; once it has, it always
/// does.
struct Budget {
  std::function<bool()> expired = [] { return false; };
};

}  // namespace swell::planner
