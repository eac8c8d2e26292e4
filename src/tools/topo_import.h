// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "tools/commands.h"

namespace swell::tools {

/// Adds `import` below `swell topo`.
Action add_topo_import(CLI::App& topo);

}  // namespace swell::tools
