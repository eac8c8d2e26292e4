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
/// Replaces a file by `text` at once: a reader sees the old text or the new one. The new one is
/// written beside it, under a name that nobody can know beforehand, and removed where it could not
/// be put in place; so is what a writer of this user left beside it that was killed. `like`: of a
/// file whose mode and owner the new one is given. The error names the file.
Result<void> replace_file(const std::string& path, const std::string& text,
                          const struct stat* like = nullptr);
/// Whether a file of this name is there, or "-": otherwise it is a name of a catalogue.
bool is_file(const std::string& name);

}  // namespace swell::tools
