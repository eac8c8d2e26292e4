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

}  // namespace swell::schedule
