// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "core/json.h"
#include "core/result.h"

namespace swell::tools {

/// Reads a whole regular file (control::read_regular()); the error names the file and the reason.
/// "-" is standard input.
Result<std::string> read_file(const std::string& path);
/// Reads a whole file as JSON; the error names the file, line and column.
Result<Json> read_json(const std::string& path);
/// Replaces a file by `text`; "-" is standard output. The error names the file and the reason.
Result<void> write_file(const std::string& path, const std::string& text);
/// Whether a file of this name is there, or "-": otherwise it is a name of a catalogue.
bool is_file(const std::string& name);

}  // namespace swell::tools
