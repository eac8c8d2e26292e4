// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace swell::tools {

/// Returns the columns that printable() text takes on a terminal: two for a wide character, none
/// for a combining one, by libc's wcwidth().
std::size_t columns_of(std::string_view text);

/// Returns the first characters of `text`, which take at most `columns`.
std::string cut_to(std::string_view text, std::size_t columns);

}  // namespace swell::tools
