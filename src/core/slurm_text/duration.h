// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <string_view>

namespace swell::slurm_text {

/// Returns the seconds of "[days-]hours:minutes:seconds" or "minutes:seconds", as Slurm prints
/// times; 0 for other text.
std::int64_t seconds_of(std::string_view text);

}  // namespace swell::slurm_text
