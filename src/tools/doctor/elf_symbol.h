// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"

namespace swell::tools::doctor {

/// Value of an exported 32-bit constant of a shared object for this machine, read from the file:
/// none of its code is loaded or run. The error names what the file lacks.
Result<std::uint32_t> read_elf_constant(const std::string& path, const std::string& symbol);
/// Value of an exported array of characters, up to its first NUL, read likewise.
Result<std::string> read_elf_text(const std::string& path, const std::string& symbol);

}  // namespace swell::tools::doctor
