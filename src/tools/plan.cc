// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/commands.h"
namespace swell::tools {
Action add_plan(CLI::App& app) { app.add_subcommand("plan", "Plan"); return [] { return 0; }; }
}
