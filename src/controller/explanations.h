// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "controller/cluster_views.h"
#include "controller/loop_state.h"

namespace swell::controller {

/// Sets for each job of `view` by what its expansions are decided (LastDecision::by()), and
/// why. Writes an event where the former has changed.
void explain(LoopState& loop, ClusterViews& views, const policy::ClusterView& view);

}  // namespace swell::controller
