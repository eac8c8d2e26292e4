// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <string>

#include "control/swell_conf.h"
#include "core/result.h"

namespace swell::controller {

/// Where slurmctld keeps its state, read from slurm.conf itself: for what is needed before
/// slurmctld answers. Slurm's default where the file does not say or cannot be read.
std::string state_folder(const std::string& slurm_conf);

/// The place of companions that swell.conf named last, kept in a file, so that it stays closed
/// where swell.conf is away or broken when slurmctld starts. An empty place where no file was
/// written yet.
control::ExpansionPlace load_place(const std::string& path);

/// Writes it and renames it into place; for the owner alone.
Result<void> save_place(const std::string& path, const control::ExpansionPlace& place);

}  // namespace swell::controller
