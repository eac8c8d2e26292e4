// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>
#include <string_view>

#include "control/messages.h"
#include "core/result.h"

namespace swell::launcher {

/// Checks that Slurm's job `companion`, by the output of `scontrol show job -d`, is what job
/// `parent` was offered: its tag, name, QOS, partition, account, licences and reservation. A
/// job_submit plugin that runs after Swell's may have changed them, and one that runs before it may
/// have turned the companion into an ordinary job. The error is for the owner.
Result<void> check_companion(std::string_view shown, control::JobId companion,
                             control::JobId parent, const control::Offer& offer);

/// Returns the name under which the output shows the job; `otherwise` if it does not show it.
std::string shown_name(std::string_view shown, control::JobId job, std::string otherwise);

}  // namespace swell::launcher
