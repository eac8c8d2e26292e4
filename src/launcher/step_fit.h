// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

namespace swell::launcher {

/// How a step differs from one of `workers` tasks on each of `nodes` nodes, for people; empty: it
/// does not. `tasks_per_node` is the step's SLURM_STEP_TASKS_PER_NODE, such as "4(x2)"; empty: it
/// is not known. `is_listed`: whether the step was asked for on this node.
std::string step_misfit(int nodes, int workers, const std::string& tasks_per_node,
                        const std::string& node, bool is_listed);

}  // namespace swell::launcher
