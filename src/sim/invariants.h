// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "sim/state.h"

namespace swell::sim {

/// Throws Broken, which names time, job and fault, unless
///  - every running job holds its basic demand (where policies lend), and trains on GPUs it holds;
///  - the ledger and the jobs agree on who holds each GPU, and no GPU is held on a node that is
///    down;
///  - only running jobs have companions.
/// Every run calls it after every event.
void check_invariants(const State& state);

}  // namespace swell::sim
