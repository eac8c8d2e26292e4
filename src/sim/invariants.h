// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "sim/state.h"

namespace swell::sim {

/// Throws Broken, naming moment, job and what is wrong, unless
///  - every running job holds its basic demand (where policies lend), and trains on GPUs it holds;
///  - each GPU is held by whom its holder's books say, and by nobody else; none on a node that is
///  down;
///  - only running jobs have companions.
/// Part of every run, after every event.
void check_invariants(const State& state);

}  // namespace swell::sim
