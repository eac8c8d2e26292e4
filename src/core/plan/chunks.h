// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/models/chain.h"
#include "core/plan/layout.h"

namespace swell::plan {

/// Units of one chunk, by their number in the model: [first, end).
struct UnitRange {
  int first = 0, end = 0;
  int count() const noexcept { return end - first; }
  friend bool operator==(const UnitRange&, const UnitRange&) = default;
};

/// Returns the number of MTP heads of the model, derived from the chunks of `layout`; 0 if it lists
/// none.
int mtp_heads_of(const Layout& layout) noexcept;
int mtp_heads_of(const Plan& plan) noexcept;

/// Returns the units of each chunk, at index stage * chunks + chunk. If no chunks are listed, uses
/// the layers of the stages: the embedding is on the first, all heads on the last. REQUIRES: the
/// layout has the units of `chain`.
std::vector<UnitRange> unit_ranges(const Layout& layout, const models::Chain& chain);

/// Returns the load of each chunk, in the same order.
std::vector<models::Load> chunk_loads(const Layout& layout, const models::Chain& chain);

/// Returns the load of each stage over all its chunks.
std::vector<models::Load> stage_loads(const Layout& layout, const models::Chain& chain);

}  // namespace swell::plan
