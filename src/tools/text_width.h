// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace swell::tools {

/// Columns that printable() text takes on a terminal: two for a wide character, none for a
/// combining one. libc's wcwidth() knows them.
std::size_t columns_of(std::string_view text);

/// The first characters of `text` that take at most `columns`.
std::string cut_to(std::string_view text, std::size_t columns);

}  // namespace swell::tools
