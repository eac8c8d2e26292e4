// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"

namespace swell::tools::doctor {

/// Reads the value of an exported 32-bit constant from a shared object for this machine, without
/// loading or running its code. The error names what the file lacks.
Result<std::uint32_t> read_elf_constant(const std::string& path, const std::string& symbol);
/// Reads an exported array of characters in the same way, up to its first NUL.
Result<std::string> read_elf_text(const std::string& path, const std::string& symbol);

}  // namespace swell::tools::doctor
