// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <vector>

#include "core/schedule/evaluate.h"

namespace swell::schedule {

/// Rules by which list_schedule() picks the next pass of an idle stage.
struct ListRules {
  /// Makes separate passes for weight gradients, which run when no other pass can.
  bool splits_weights = false;
  /// Runs forward and backward passes exactly in the order of the base. If false, runs the first
  /// pass whose input has arrived.
  bool keeps_order = true;
  /// A stage waits for a pass that can start within this share of the time of a weight gradient.
  double patience = 0;
  /// By stage: maximum memory; no forward pass that would exceed it starts. Empty: no limit.
  std::vector<double> limit_bytes;
};

/// Simulates one iteration with `costs` and returns the order in which the stages ran their passes.
/// `base`: gives the priority of passes; its weight gradients are ignored. Returns nothing if the
/// memory limit stops every stage. REQUIRES: check(base), costs.check(base.shape).
std::optional<Schedule> list_schedule(const Schedule& base, const Costs& costs,
                                      const ListRules& rules);

}  // namespace swell::schedule
