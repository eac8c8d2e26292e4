// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <string>

#include "core/result.h"

namespace swell::control {

/// Size up to which a file is read that a user names.
constexpr std::size_t kMaxInput = std::size_t{256} << 20;

/// Content of a regular file of at most `max_bytes`. FIFOs, devices, sockets and folders are
/// refused without waiting for them; the error names the file.
Result<std::string> read_regular(const std::string& path, std::size_t max_bytes = kMaxInput);

/// Whether read_regular() would take it, for what a library reads.
Result<void> check_regular(const std::string& path);

}  // namespace swell::control
