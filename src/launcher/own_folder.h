// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/result.h"

namespace swell::launcher {

/// For a folder that holds no socket.
inline constexpr std::size_t kAnyLength = 0;

/// Makes a folder for this process alone, of mode 0700, in `base` or, where that is empty, in
/// TMPDIR. In /tmp where nothing can be made in TMPDIR, which may be one of another node, or where
/// a socket whose path goes on with `below` bytes would have too long a path there. Removes those
/// of the same `kind` whose processes of this user have ended.
Result<std::string> make_own_folder(std::string_view kind, const std::string& base = {},
                                    std::size_t below = kAnyLength);

/// Identity of this boot of the machine.
std::string boot_id();

}  // namespace swell::launcher
