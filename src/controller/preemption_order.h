// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/view.h"
#include "slurm/live_slurm.h"

namespace swell::controller {

/// In which order Slurm preempts companions: by slurm.conf, and by whether this process, slurmctld,
/// has loaded Swell's select plugin; as they are reclaimed where Slurm preempts nothing. Loads
/// nothing.
policy::Preemption preemption_order(const slurm::ControllerConfig& config);

}  // namespace swell::controller
