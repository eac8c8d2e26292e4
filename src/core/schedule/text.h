// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include "core/schedule/schedule.h"

namespace swell::schedule {

/// `schedule` as text, for files and messages: a line for each stage, first to last; a letter for
/// each pass (F, B, W), with the number of its chunk behind it where that is not 0; `*N` behind a
/// pass or a group in brackets repeats it. Micro-batches are not written, since they rise.
/// "F*3(FB)*5B*3" is the first of four stages under 1F1B, with eight micro-batches. REQUIRES:
/// check(schedule).
std::string to_text(const Schedule& schedule);

/// Reads what to_text() writes. Blanks and empty lines are skipped, `#` begins a comment, and `;`
/// ends a line as a new line does. Chunks and micro-batches are counted. The error names the line,
/// or what check() finds.
Result<Schedule> parse(std::string_view text);

/// Longest text of a schedule that plans carry.
inline constexpr std::size_t kMaxText = 16 * 1024;

/// The schedule of a plan of `shape` that `said` is: one of names(), or what to_text() writes;
/// empty: interleaved(), which is 1F1B with one chunk. An error where it is neither, or of another
/// shape.
Result<Schedule> schedule_for(std::string_view said, const Shape& shape);

}  // namespace swell::schedule
