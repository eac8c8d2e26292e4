// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <ctime>
#include <optional>

#include "launcher/exit.h"

/// Whether srun is to launch a step again, whose program has not begun.
namespace swell::launcher {

/// Whether srun ended since the slurmd of a node did not answer.
bool slurmd_was_lost(const Exit& exit);

/// Whether srun may have ended since slurmctld died before it answered: it does so with the code of
/// all its own errors, `slurm_exit_error` (the variable of that name; null: not set). When
/// slurmctld was started must be asked.
bool srun_failed(const Exit& exit, const char* slurm_exit_error);

/// Whether a start of slurmctld at `since` may explain that it refused a step to a run that began
/// at `began`: Slurm 22.05 also refuses steps until the nodes have registered.
bool slurmctld_was_away(std::optional<std::time_t> since, std::time_t began);

/// In how many seconds a slurmctld that was started at `since` knows its nodes: a step that is
/// asked for before may wait for minutes, in Slurm itself. 0: it does, or does not say since when
/// it runs.
double knows_nodes_in(std::optional<std::time_t> since, std::time_t now);

/// Returns the seconds until a step is launched again that failed this many times; none: never.
std::optional<double> launch_again_in(int launches);

}  // namespace swell::launcher
