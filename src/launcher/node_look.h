// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/command.h"
#include "launcher/slurm_env.h"

/// A look at a job's nodes by a step on them, for sites where `scontrol show job -d` does not tell
/// users what they have: in Slurm 22.05 it crashes if PrivateData hides the nodes.
namespace swell::launcher {

/// Returns the srun command whose tasks, one for each of the job's `nodes`, print what the job has
/// there. It shares the job's resources with other steps, and is to run in outside_environment().
Command node_look_command(control::JobId job, std::size_t nodes);

/// Reads the output of that command, in Slurm's order of nodes; an error unless all nodes are
/// there. The result has no memory sizes, and has types of GPUs only if `wanted_gpus` (of JobFacts)
/// names those of each node.
Result<std::vector<NodeShare>> read_node_look(std::string_view text, std::size_t nodes,
                                              std::string_view wanted_gpus);

}  // namespace swell::launcher
