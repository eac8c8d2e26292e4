// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <string_view>

namespace swell::control {

/// Text of others as it may stand in a log: control characters as \xNN, so that it can neither begin a line of its own
/// nor command a terminal, and at most `max_bytes` of it.
std::string printable(std::string_view text, std::size_t max_bytes = 2000);

}  // namespace swell::control
