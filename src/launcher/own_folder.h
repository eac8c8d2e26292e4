// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/result.h"

namespace swell::launcher {

/// The value of `below` for a folder that holds no socket.
inline constexpr std::size_t kAnyLength = 0;

/// Makes a folder for this process alone, of mode 0700, in `base`; if that is empty, in TMPDIR, or
/// in /tmp if nothing can be made in TMPDIR, which may be another node's, or if the path of a
/// socket `below` bytes below the folder would be too long there. Removes folders of the same
/// `kind` and user whose processes have ended.
Result<std::string> make_own_folder(std::string_view kind, const std::string& base = {},
                                    std::size_t below = kAnyLength);

/// Returns the kernel's id of this boot of the machine.
std::string boot_id();

}  // namespace swell::launcher
