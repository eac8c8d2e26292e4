// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/plan/plan.h"
#include "core/result.h"
#include "launcher/seating.h"

namespace swell::launcher {

/// Seats of the ranks of `plan` in its order: stage by stage, group by group, GPU by GPU; the
/// Seating's plan is as SWELL_PLAN has it. Slurm chooses the GPUs of a companion by itself: where
/// it took others of a node than the plan names, and as many, these stand in for them. The error
/// says why the plan does not fit the nodes: it must use each worker once, one GPU each.
Result<Seating> seat_by_plan(const plan::Plan& plan, const std::vector<WorkerNode>& nodes,
                             int gpus_per_worker);

}  // namespace swell::launcher
