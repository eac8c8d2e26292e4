// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

namespace swell::launcher {

/// Writes "swellrun: LINE" to standard error.
void say(const std::string& line);

}  // namespace swell::launcher
