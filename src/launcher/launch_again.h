// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <ctime>
#include <optional>

#include "launcher/exit.h"

/// Decides whether srun launches a step again whose program has not begun.
namespace swell::launcher {

/// Returns whether srun ended because the slurmd of a node did not answer.
bool slurmd_was_lost(const Exit& exit);

/// Returns whether srun may have ended because slurmctld died before it answered. srun has one exit
/// code for all its own errors: `slurm_exit_error` (the variable of that name; null: not set). So
/// the caller must also ask when slurmctld was started.
bool srun_failed(const Exit& exit, const char* slurm_exit_error);

/// Returns whether a start of slurmctld at `since` may explain why it refused a step to a run that
/// began at `began`: Slurm 22.05 also refuses steps until the nodes have registered.
bool slurmctld_was_away(std::optional<std::time_t> since, std::time_t began);

/// Returns the seconds until a slurmctld that was started at `since` knows its nodes: a step that
/// is asked for earlier may wait for minutes in Slurm itself. 0: it knows them, or `since` is not
/// known.
double knows_nodes_in(std::optional<std::time_t> since, std::time_t now);

/// Returns the seconds until a step is launched again that failed this many times; none: never.
std::optional<double> launch_again_in(int launches);

}  // namespace swell::launcher
