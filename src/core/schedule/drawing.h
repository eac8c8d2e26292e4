// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "core/schedule/evaluate.h"

namespace swell::schedule {

inline constexpr std::size_t kMaxDrawnPasses = 50'000;

/// Draws one iteration as an SVG file: a row for each stage with its peak memory, and a box for
/// each pass. A box is as long as its pass, shows the micro-batch if there is room, and has a title
/// with the pass and its times. Chunks differ by shade. Returns an error if the costs do not match
/// the schedule, or there are too many passes to draw.
Result<std::string> to_svg(const Schedule& schedule, const Costs& costs);

}  // namespace swell::schedule
