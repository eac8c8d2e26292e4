// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include "core/schedule/schedule.h"

namespace swell::schedule {

/// Writes `schedule` as text, for files and messages. Each stage has a line, first to last. Each
/// pass is a letter (F, B, W), followed by the number of its chunk unless it is 0. `*N` after a
/// pass or a group in brackets repeats it. Micro-batches are not written, since they always rise.
/// "F*3(FB)*5B*3" is the first of four stages under 1F1B with eight micro-batches. REQUIRES:
/// check(schedule).
std::string to_text(const Schedule& schedule);

/// Reads the form of to_text(). Skips blanks and empty lines; `#` begins a comment, and `;` ends a
/// line like a new line. Counts chunks and micro-batches. The error names the line, or is the one
/// of check().
Result<Schedule> parse(std::string_view text);

/// Maximum length of a schedule's text in a plan.
inline constexpr std::size_t kMaxText = 16 * 1024;

/// Returns the schedule for a plan of `shape`. `said`: one of names(), or text in the form of
/// to_text(); empty: interleaved(), which is 1F1B with one chunk. Returns an error for other text,
/// or a schedule of another shape.
Result<Schedule> schedule_for(std::string_view said, const Shape& shape);

}  // namespace swell::schedule
