// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "core/policy/view.h"
#include "slurm/live_slurm.h"

namespace swell::controller {

/// In which order Slurm preempts companions: by whether this process, slurmctld, has loaded Swell's
/// select plugin, and by slurm.conf. Loads nothing.
policy::Preemption preemption_order(const slurm::ControllerConfig& config);

}  // namespace swell::controller
