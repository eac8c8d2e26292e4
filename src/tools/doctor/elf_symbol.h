// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"

namespace swell::tools::doctor {

/// The value of an exported 32-bit constant of a shared object of this machine's kind, read from
/// the file: nothing of it is loaded or run. The error says what the file lacks.
Result<std::uint32_t> read_elf_constant(const std::string& path, const std::string& symbol);
/// The same for an exported array of characters, up to its first NUL.
Result<std::string> read_elf_text(const std::string& path, const std::string& symbol);

}  // namespace swell::tools::doctor
