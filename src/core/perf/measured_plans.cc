// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/perf/measured_plans.h"

namespace swell::perf {

std::uint64_t shape_of(const plan::Layout& layout, std::uint64_t seed) noexcept {
  std::uint64_t state = seed;
  const auto mix = [&](std::uint64_t value) {  // SplitMix64
    state += value + 0x9e3779b97f4a7c15u;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    state = z ^ (z >> 31);
  };
  mix(static_cast<std::uint64_t>(layout.micro_batches));
  for (const plan::StageLayout& stage : layout.stages) {
    mix(static_cast<std::uint64_t>(stage.layers) << 32 | static_cast<std::uint64_t>(stage.tp));
    for (const int units : stage.chunks) mix(static_cast<std::uint64_t>(units));
    for (std::size_t j = 0; j < stage.groups.size(); ++j) {
      const plan::GroupLayout& group = stage.groups[j];
      const bool next_node = j > 0 && !plan::together(stage.groups[j - 1], group);
      mix(static_cast<std::uint64_t>(group.type) << 33 |
          static_cast<std::uint64_t>(next_node) << 32 |
          static_cast<std::uint64_t>(group.local_batch));
    }
  }
  return state;
}

double MeasuredPlans::factor_of(const plan::Layout& layout) const noexcept {
  const std::uint64_t shape = shape_of(layout);
  for (const Plan& plan : plans)
    if (plan.shape == shape) return plan.factor;
  return others;
}

}  // namespace swell::perf
