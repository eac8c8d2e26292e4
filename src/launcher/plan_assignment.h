// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <vector>

#include "core/plan/plan.h"
#include "core/result.h"
#include "launcher/rank_assignment.h"

namespace swell::launcher {

/// Seats of the ranks of `plan` in its order: stage by stage, group by group, GPU by GPU; the
/// RankAssignment's plan is as SWELL_PLAN has it. Slurm chooses the GPUs of a companion by itself:
/// where it took others of a node than the plan names, these stand in for them. Workers whose GPUs
/// the plan does not use wait, without a program. The error says why the plan does not fit the
/// nodes: it must use no worker twice, one GPU each.
Result<RankAssignment> seat_by_plan(const plan::Plan& plan, const std::vector<WorkerNode>& nodes,
                                    int gpus_per_worker);

}  // namespace swell::launcher
