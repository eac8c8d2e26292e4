// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <sys/stat.h>

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
/// Replaces a file by `text` atomically: a reader sees the old text or the new one. The new file is
/// written beside it, under a name that nobody can guess, and removed if it cannot be put in place,
/// as are files that killed writers of this user left there. `like`: a file with the mode and owner
/// that it gets. The error names the file.
Result<void> replace_file(const std::string& path, const std::string& text,
                          const struct stat* like = nullptr);
/// Returns whether a file of this name exists, or it is "-": otherwise it is a catalogue's name.
bool is_file(const std::string& name);

}  // namespace swell::tools
