// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/result.h"

namespace swell::tools::doctor {

/// Runs a program, found on PATH, without a shell, and returns its standard output. The error holds
/// the first line of its standard error, or says that it did not end within `patience`.
Result<std::string> output_of(const std::vector<std::string>& command,
                              std::chrono::seconds patience);

}  // namespace swell::tools::doctor
