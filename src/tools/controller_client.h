// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "control/messages.h"
#include "core/result.h"

namespace swell::tools {

/// Asks the controller in the slurmctld that slurm.conf names, as who runs this; waits some
/// seconds. What it refuses is an error.
Result<control::Answer> ask_controller(const control::Ask& ask);

}  // namespace swell::tools
