// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/layout.h"

namespace swell::perf {

/// Returns a hash of the plan's shape: stages, layers, chunks, TP degrees, micro-batches, samples
/// and types of the groups, and which groups share a node. Which nodes and GPUs these are does not
/// change it. Different seeds give independent hashes.
std::uint64_t shape_of(const plan::Layout& layout, std::uint64_t seed = 0) noexcept;

/// Corrections of one job's predicted times, from the plans that it ran. The predicted time of a
/// plan whose shape was measured is the measured time.
struct MeasuredPlans {
  struct Plan {
    std::uint64_t shape = 0;
    double factor = 1;  ///< measured over predicted time
    friend bool operator==(const Plan&, const Plan&) = default;
  };
  std::vector<Plan> plans;
  double others = 1;  ///< expected over predicted time of the plans that were not measured
  bool empty() const noexcept { return plans.empty(); }
  /// Returns the factor by which the predicted time of `layout` is multiplied. REQUIRES: !empty().
  double factor_of(const plan::Layout& layout) const noexcept;
  friend bool operator==(const MeasuredPlans&, const MeasuredPlans&) = default;
};

}  // namespace swell::perf
