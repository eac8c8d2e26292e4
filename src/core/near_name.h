// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace swell {

/// Returns how many letters to change, add or remove to turn one name into the other.
std::size_t letters_apart(std::string_view a, std::string_view b);

/// Returns the name that `word` was probably meant to be: the nearest of those `names` that are at
/// most two letters away and share a letter with it; the first of several equally near ones.
std::optional<std::string> near_name(std::string_view word, const std::vector<std::string>& names);

}  // namespace swell
