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

/// Returns a command that prints the job's time left: numbers only, no text that a user chose.
std::vector<std::string> time_left_command(JobId job);

/// Reads the output of that command; nullopt if it does not say.
std::optional<TimeLeft> read_time_left(const std::string& output, JobId job);

}  // namespace swell::launcher
