// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "core/result.h"

namespace swell::spank {

/// Has `program` (swell) read the table of speeds in `file`, since its parser needs libraries that
/// this plugin does without. Returns SpeedTable::text(); the error is the program's sentence.
Result<std::string> read_speeds(const std::string& program, const std::string& file);

}  // namespace swell::spank
