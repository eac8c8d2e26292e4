// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace swell {

/// Number of letters to change, add or leave out between two names.
std::size_t letters_apart(std::string_view a, std::string_view b);

/// The name that was probably meant by `word`: the nearest of `names`, of those that are no more
/// than two letters away and share a letter with it; of equally near ones the first.
std::optional<std::string> near_name(std::string_view word, const std::vector<std::string>& names);

}  // namespace swell
