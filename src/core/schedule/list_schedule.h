// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <vector>

#include "core/schedule/evaluate.h"

namespace swell::schedule {

/// How list_schedule() picks the next pass of a stage that is free.
struct ListRules {
  /// Makes weight gradients passes of their own, which run where nothing else can.
  bool splits_weights = false;
  /// Runs forward and backward passes exactly in the order of the base; otherwise the first of them
  /// whose input has come.
  bool keeps_order = true;
  /// A stage waits for a pass that can start within this share of the time of a weight gradient.
  double patience = 0;
  /// By stage: no forward pass starts that would keep more; empty: no limit.
  std::vector<double> limit_bytes;
};

/// Plays one iteration with `costs`, and returns the order in which the stages came to run their
/// passes. `base`: says which of two passes is preferred; its weight gradients are left out.
/// Returns nothing where the limit stops every stage. REQUIRES: check(base),
/// costs.check(base.shape).
std::optional<Schedule> list_schedule(const Schedule& base, const Costs& costs,
                                      const ListRules& rules);

}  // namespace swell::schedule
