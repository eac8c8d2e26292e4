// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "core/schedule/evaluate.h"

namespace swell::schedule {

inline constexpr std::size_t kMaxDrawnPasses = 50'000;

/// One iteration as an SVG file: a row for each stage with its peak memory, a box for each pass, as
/// long as it takes, with its micro-batch where there is room, and in its title what it is and
/// when. Chunks differ by shade. An error where costs are not of the schedule, or where there are
/// more passes than are drawn.
Result<std::string> to_svg(const Schedule& schedule, const Costs& costs);

}  // namespace swell::schedule
