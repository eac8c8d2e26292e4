// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <string>

#include "core/result.h"

namespace swell::control {

/// Maximum size in bytes of a file that a user names.
constexpr std::size_t kMaxInput = std::size_t{256} << 20;

/// Returns the content of a regular file of at most `max_bytes`. Refuses FIFOs, devices, sockets
/// and folders without waiting for them; the error names the file.
Result<std::string> read_regular(const std::string& path, std::size_t max_bytes = kMaxInput);

/// Returns the config.json of a folder that has one, as transformers' save_pretrained() writes it;
/// else the path itself.
std::string model_file_at(const std::string& path);

/// Returns an error unless the path is a readable regular file that is not empty: for files that a
/// library will read.
Result<void> check_regular(const std::string& path);

}  // namespace swell::control
