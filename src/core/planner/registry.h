// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <memory>
#include <string_view>

#include "core/planner/solver.h"
#include "core/result.h"

namespace swell::planner {

/// Returns the solver called `name`: incremental, exhaustive, symmetric, dp-only or metis. The
/// error for an unknown name lists them.
Result<std::unique_ptr<Solver>> make_solver(std::string_view name);

}  // namespace swell::planner
