// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/exit.h"
#include "launcher/rank_assignment.h"

namespace swell::launcher {

/// How long a job may still run.
struct TimeLeft {
  std::optional<double> seconds;  ///< none: without a limit
};

/// Asks Slurm for it. Only numbers come back, and no text of a user's.
std::vector<std::string> time_left_command(JobId job);

/// Reads the output of that command; nothing: it does not say.
std::optional<TimeLeft> read_time_left(const std::string& output, JobId job);

}  // namespace swell::launcher
