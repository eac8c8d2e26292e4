// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/plan/chunks.h"

#include <algorithm>
#include <numeric>

#include "core/saturating.h"

namespace swell::plan {

namespace {

template <typename AnyPlan>
int mtp_heads_in(const AnyPlan& plan) noexcept {
  long layers = 0, units = 0;
  for (const auto& stage : plan.stages) {
    layers += stage.layers;
    units += std::accumulate(stage.chunks.begin(), stage.chunks.end(), 0L);
  }
  const long alone = models::Chain::units(0, 0);  // embedding and head
  return saturated_int(std::max(0L, (units - layers - alone) / 2));
}

}  // namespace

int mtp_heads_of(const Layout& layout) noexcept { return mtp_heads_in(layout); }
int mtp_heads_of(const Plan& plan) noexcept { return mtp_heads_in(plan); }

std::vector<UnitRange> unit_ranges(const Layout& layout, const models::Chain& chain) {
  std::vector<UnitRange> ranges;
  int next = 0;
  if (!layout.has_chunks()) {
    for (const StageLayout& stage : layout.stages) {
      const bool last = &stage == &layout.stages.back();
      const int end = last ? chain.units() : next + stage.layers + (next == 0 ? 1 : 0);
      ranges.push_back({next, end});
      next = end;
    }
    return ranges;
  }
  const std::size_t chunks = layout.stages.front().chunks.size();
  ranges.resize(layout.stages.size() * chunks);
  for (std::size_t chunk = 0; chunk < chunks; ++chunk)
    for (std::size_t i = 0; i < layout.stages.size(); ++i) {
      const int count = layout.stages[i].chunks[chunk];
      ranges[i * chunks + chunk] = {next, next + count};
      next += count;
    }
  return ranges;
}

std::vector<models::Load> chunk_loads(const Layout& layout, const models::Chain& chain) {
  std::vector<models::Load> loads;
  for (const UnitRange& range : unit_ranges(layout, chain))
    loads.push_back(chain.load(range.first, range.end));
  return loads;
}

std::vector<models::Load> stage_loads(const Layout& layout, const models::Chain& chain) {
  std::vector<models::Load> loads(layout.stages.size());
  const std::vector<models::Load> all = chunk_loads(layout, chain);
  const std::size_t chunks = static_cast<std::size_t>(layout.chunks());
  for (std::size_t at = 0; at < all.size(); ++at) loads[at / chunks] += all[at];
  return loads;
}

}  // namespace swell::plan
