// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <optional>

#include "launcher/exit.h"

namespace swell::launcher {

/// In how many seconds srun is to launch a step again whose program has not begun: where srun ended
/// since the slurmd of a node did not answer. `launches`: how often it was tried. None: never.
std::optional<double> launch_again_in(const Exit& exit, int launches);

}  // namespace swell::launcher
